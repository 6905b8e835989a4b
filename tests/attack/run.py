"""One run: what is drawn from the seed is sent at a bounded rate, and all that comes of it is checked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.attack.ammunition import BOMB, bombs
from tests.attack.arena import Arena, Watch
from tests.attack.batches import Attack, Attacks
from tests.attack.copies import COPY, Copies
from tests.attack.fates import FateReader
from tests.attack.ledger import Ledger, Sent
from tests.attack.requests import Request
from tests.bad_input.row import OLDER_OFFSETS, PARTITIONS
from tests.stacks import Stack
from tests.support.raw import Attribute, Connection, Produced, RawRecord, batch_of

_PROBE_EVERY_S: Final = 1.0
_LINE_EVERY_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.5
_COPY_EVERY_S: Final = 2.0
_MOST_BEHIND_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """What is done: for so long, so many records a second; a bomb every so often, and now and then a salvo of
    them. `only`: these kinds alone. `patience_s`: in which something must come of a record that is due;
    `probe_patience_s`: in which a sound message for now must arrive, whatever stands beside it.
    """

    seconds: float
    seed: int = 1
    rate: float = 200.0
    bomb_every_s: float = 10.0
    salvo_every_s: float = 600.0
    salvo: int = 100
    only: tuple[str, ...] = ()
    patience_s: float = 60.0
    probe_patience_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of a run; `flaws` is empty if all is well."""

    flaws: list[str]
    requests: int  # that were produced, whether or not the broker took them
    records: int  # that it took
    refused: dict[int | None, int]  # by the broker's error code
    kinds: dict[str, int]  # requests of each kind that it took
    fates: dict[str, int]
    codes: dict[str, int]
    latencies_ms: list[int]  # of probes, sorted
    peak_bytes: int
    logged: dict[str, int]
    epochs: int

    def quantile_ms(self, part: float) -> int:
        """Of the probes' latencies."""
        return self.latencies_ms[int(part * (len(self.latencies_ms) - 1))] if self.latencies_ms else 0


Say = Callable[[str], None]


def attack(stack: Stack, cluster: str, folder: Path, options: Options, say: Say = print) -> Summary:
    """Makes the cluster and attacks it; ends early where there is a flaw."""
    with Arena(stack, cluster, folder) as arena, Connection(stack.bootstrap) as connection:
        return _Run(arena, connection, options, say).run()


class _Run:
    """One run, on the thread that calls; the fates and the node have threads of their own."""

    def __init__(self, arena: Arena, connection: Connection, options: Options, say: Say) -> None:
        self._arena = arena
        self._connection = connection
        self._options = options
        self._say = say
        self._ledger = Ledger(
            arena.names.buffer, int(options.patience_s * 1000), int(options.probe_patience_s * 1000)
        )
        self._fates = FateReader(arena.bootstrap, arena.names, arena.targets, self._ledger)
        self._watch = Watch(arena, self._ledger)
        self._attacks = Attacks(options.seed, arena.cluster, options.only)
        self._copies = Copies(connection, arena.names.buffer, options.seed)
        self._own_producers: set[int] = set()
        self._bombs: Iterator[Attack] | None = None
        if self._sends(BOMB):
            self._bombs = bombs(arena.cluster)
        self._sent: Counter[str] = Counter()
        self._refused: Counter[int | None] = Counter()
        self._probes = 0
        self._waiting_bombs = 0

    def run(self) -> Summary:
        self._fates.start()
        self._watch.start()
        try:
            self._begin()
            self._send()
            self._settle()
        finally:
            self._watch.stop()
            self._fates.stop()
        self._say(self._line("end"))
        return self._summary()

    # -- sending

    def _begin(self) -> None:
        for partition in range(PARTITIONS):
            for _ in range(OLDER_OFFSETS):
                self._produce(_alone("older", self._attacks.requests.older(partition), partition))

    def _send(self) -> None:
        begun_s = time.monotonic()
        for duty in self._duties(begun_s):
            if self._ledger.flaws or time.monotonic() - begun_s > self._options.seconds:
                return
            duty()

    def _duties(self, begun_s: float) -> Iterator[Callable[[], None]]:
        """What is to be done next, each at its time."""
        options = self._options
        timed = [
            _Timed(begun_s, _PROBE_EVERY_S, self._probe),
            _Timed(begun_s + _LOOK_EVERY_S, _LOOK_EVERY_S, self._look),
            _Timed(begun_s + _LINE_EVERY_S, _LINE_EVERY_S, lambda: self._say(self._line("now"))),
        ]
        if self._bombs is not None:
            timed.append(_Timed(begun_s + options.bomb_every_s / 2, options.bomb_every_s, self._next_bomb))
            timed.append(_Timed(begun_s + options.salvo_every_s / 2, options.salvo_every_s, self._salvo))
        if self._sends(COPY):
            timed.append(_Timed(begun_s + _COPY_EVERY_S, _COPY_EVERY_S, self._copy))
        next_s = begun_s
        while True:
            now_s = time.monotonic()
            for one in timed:
                if one.is_due(now_s):
                    yield one.duty
            if self._waiting_bombs:
                yield self._bomb
            if now_s < next_s:
                time.sleep(min(next_s - now_s, 0.05))  # paces what is sent
                continue
            drawn = self._attacks.draw()
            next_s = max(next_s, now_s - _MOST_BEHIND_S) + drawn.cost / options.rate
            yield lambda drawn=drawn: self._produce(drawn)  # type: ignore[misc]  # it has a default

    def _probe(self) -> None:
        self._probes += 1
        request = self._attacks.requests.probe()
        self._produce(_alone("probe", request, self._probes % PARTITIONS), probe=True)

    def _sends(self, kind: str) -> bool:
        return not self._options.only or kind in self._options.only

    def _copy(self) -> None:
        copied = self._copies.draw(self._own_producers)
        if copied is not None:
            self._produce(copied)

    def _bomb(self) -> None:
        if self._bombs is not None:
            self._waiting_bombs -= 1
            self._produce(next(self._bombs))

    def _next_bomb(self) -> None:
        self._waiting_bombs += 1

    def _salvo(self) -> None:
        self._waiting_bombs += self._options.salvo

    def _look(self) -> None:
        self._ledger.look(time.time() * 1000)

    def _produce(self, drawn: Attack, *, probe: bool = False) -> None:
        produced = self._transact(drawn) if drawn.commit is not None else self._produce_plainly(drawn)
        if produced.refused:
            self._refused[produced.error] += 1
            return
        self._sent[drawn.kind] += 1
        if produced.base_offset < self._ledger.end(drawn.partition):
            return  # a sequence that the broker had taken before: it is in the log once
        if drawn.commit is not False:
            place = drawn.partition, produced.base_offset, drawn.batch.count
            sent = Sent(
                drawn.what, *place, drawn.expected, produced.append_ms, drawn.whole, drawn.times, probe
            )
            self._ledger.note(sent)

    def _produce_plainly(self, drawn: Attack) -> Produced:
        raw = drawn.batch.encode()
        return self._connection.produce(self._arena.names.buffer, drawn.partition, raw * (1 + drawn.twice))

    def _transact(self, drawn: Attack) -> Produced:
        """One that is short: while it is open, what is behind it waits."""
        name, buffer = f"{self._arena.cluster}-attack", self._arena.names.buffer
        producer = self._connection.producer_id(name)
        self._own_producers.add(producer.id)
        batch = replace(
            drawn.batch,
            attributes=drawn.batch.attributes | Attribute.TRANSACTIONAL,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=0,
        )
        self._connection.begin(name, producer, buffer, drawn.partition)
        produced = self._connection.produce(buffer, drawn.partition, batch, transactional_id=name)
        self._connection.end(name, producer, commit=bool(drawn.commit))
        return produced

    # -- the end

    def _settle(self) -> None:
        """Waits until something has come of everything; then until what was sent last has arrived, twice: by
        then the node has passed all that was before it.
        """
        self._wait_settled()
        for _ in range(2):
            for _ in range(PARTITIONS):
                self._probe()
            self._wait_settled()
        if not self._ledger.flaws:
            self._ledger.look()

    def _wait_settled(self) -> None:
        """The ledger's own deadlines end it."""
        while self._ledger.outstanding and not self._ledger.flaws:
            self._look()
            time.sleep(0.05)  # between two looks; nothing tells us

    # -- words

    def _line(self, when: str) -> str:
        fates = self._ledger.fates
        summary = self._summary()
        return (
            f"{when}: {summary.requests} requests, {summary.records} records; "
            + ", ".join(f"{fates[kind]} {kind}" for kind in sorted(fates))
            + f"; {self._ledger.outstanding} open; probes p50 {summary.quantile_ms(0.5)}"
            f" p99 {summary.quantile_ms(0.99)} max {summary.quantile_ms(1)} ms;"
            f" {summary.peak_bytes >> 20} MB; {len(summary.flaws)} flaws"
        )

    def _summary(self) -> Summary:
        ledger = self._ledger
        oldest = [f"first without a fate: {words}" for words in ledger.oldest()] if ledger.flaws else []
        return Summary(
            [*ledger.flaws, *oldest],
            self._sent.total(),
            ledger.acknowledged,
            dict(self._refused),
            dict(self._sent),
            dict(ledger.fates),
            dict(ledger.codes),
            sorted(ledger.latencies_ms),
            self._watch.peak_bytes,
            dict(self._watch.logged),
            len(self._watch.epochs),
        )


def _alone(kind: str, request: Request, partition: int) -> Attack:
    """A batch of one, as any client sends it."""
    batch = batch_of([RawRecord(request.key, request.value, request.headers)])
    return Attack(kind, request.what, partition, batch, [request.expected])


class _Timed:
    """A duty that comes again and again; one that was missed is not made up for."""

    def __init__(self, first_s: float, every_s: float, duty: Callable[[], None]) -> None:
        self.duty = duty
        self._next_s, self._every_s = first_s, every_s

    def is_due(self, now_s: float) -> bool:
        if now_s < self._next_s:
            return False
        self._next_s = max(self._next_s + self._every_s, now_s)
        return True
