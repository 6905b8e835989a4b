"""Runs seeds: one, or ranges of them that can be interrupted and go on where they stopped."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import structlog

from delayline import recurrence
from tests.simulation.eras import eras
from tests.simulation.gap import check_gap
from tests.simulation.invariants import check
from tests.simulation.profile import DEFAULT, PROFILES, Profile
from tests.simulation.requests import MOST_MISSED
from tests.simulation.stores import CrashableStore, MemoryStore, RocksCrashStore, dump
from tests.simulation.world import World

ROOT: Final = Path(__file__).parents[2]
STATE_FOLDER: Final = ROOT / ".simulation"
SOURCES: Final = (
    "delayline/*.py",
    "store/*.py",
    "node/core/*.py",
    "tests/simulation/*.py",
)
CHUNK: Final = 25
SHARED_MEMORY: Final = Path("/dev/shm")


@dataclass(frozen=True)
class Result:
    """What came of one seed."""

    seed: int
    digest: str
    failure: str | None  # the violation, in one line; None: clean
    invariant: str | None
    requests: int
    faults: int
    coverage: Counter[tuple[str, str]]
    details: str = ""  # the traceback of a failure
    stores: str = ""  # the hash of what is in the nodes' stores at the end


def run_seed(
    seed: int,
    profile: Profile = DEFAULT,
    *,
    store: str = "memory",
    trace: Callable[[str], None] | None = None,
) -> Result:
    """Runs and checks one seed, on `store` memory or rocksdb. Raises nothing."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with _stores(store) as new_store, _few_missed():
        world = World(seed, profile, new_store, trace)
        failure = invariant = None
        details = ""
        try:
            world.run()
            if world.lost or len(eras([*world.lost, world.checkpoints])) > 1:
                check_gap(world)
            else:
                check(world)
        except Exception as error:
            invariant = getattr(error, "invariant", type(error).__name__)
            failure, details = str(error) or repr(error), traceback.format_exc()
        contents = blake2b(digest_size=8)
        for node in world.nodes:
            contents.update(repr(dump(node.store)).encode())
            node.store.close()
    return Result(
        seed,
        world.digest(),
        failure,
        invariant,
        world.setup.request_count - world.requests_left,
        world.setup.fault_count - world.faults_left,
        world.coverage,
        details,
        contents.hexdigest(),
    )


USUAL_MISSED: Final = recurrence.MOST_MISSED
_running = threading.Lock()
_runs = 0  # threads of one process run seeds at the same time: tests/simulation/mutants.py


@contextmanager
def _few_missed() -> Iterator[None]:
    """So few occurrences may be missed that histories get there."""
    _count_run(1)
    try:
        yield
    finally:
        _count_run(-1)


def _count_run(change: int) -> None:
    global _runs  # noqa: PLW0603 - as the number that it guards
    with _running:
        _runs += change
        recurrence.MOST_MISSED = MOST_MISSED if _runs else USUAL_MISSED


class _stores:  # noqa: N801 (a context manager, used like a function)
    """Makes the nodes' stores; their folders go with it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        # In memory where there is such a folder: it is the process that crashes, not the machine.
        parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        made = kind == "rocksdb"
        self._folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=parent)) if made else None

    def __enter__(self) -> Callable[[str], CrashableStore]:
        if self._folder is None:
            return lambda _: MemoryStore()
        folder = self._folder
        return lambda name: RocksCrashStore(folder / name)

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


# ---------------------------------------------------------------------- ranges of seeds


@dataclass
class Total:
    """What has been run of one version of the code."""

    done: list[list[int]] = field(default_factory=list)  # ranges [begin, end), in order
    failed: dict[str, str] = field(default_factory=dict)  # seed -> violation
    requests: int = 0
    faults: int = 0
    seconds: float = 0.0
    coverage: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def seeds(self) -> int:
        """How many seeds have been run."""
        return sum(end - begin for begin, end in self.done)

    def add(self, begin: int, results: list[Result]) -> None:
        """Adds the results of a range."""
        self.done = merged([*self.done, [begin, begin + len(results)]])
        for result in results:
            self.requests += result.requests
            self.faults += result.faults
            self.coverage.update(result.coverage)
            if result.failure is not None:
                self.failed[str(result.seed)] = result.failure

    def missing(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [begin, end) that have not been run, in chunks."""
        done = {seed for low, high in self.done for seed in range(max(low, begin), min(high, end))}
        at = begin
        while at < end:
            if at in done:
                at += 1
                continue
            stop = at + 1
            while stop < end and stop - at < CHUNK and stop not in done:
                stop += 1
            yield at, stop
            at = stop


def merged(ranges: list[list[int]]) -> list[list[int]]:
    """Ranges in order, those that touch made one."""
    result: list[list[int]] = []
    for begin, end in sorted(ranges):
        if result and begin <= result[-1][1]:
            result[-1][1] = max(end, result[-1][1])
        else:
            result.append([begin, end])
    return result


def fingerprint() -> str:
    """A hash of all sources whose change makes earlier seeds void."""
    digest = blake2b(digest_size=6)
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def state_file(profile: str, store: str) -> Path:
    """Where the total of the code as it is now is kept."""
    return STATE_FOLDER / f"{profile}-{store}-{fingerprint()}.json"


def load(path: Path) -> Total:
    """The total so far."""
    if not path.exists():
        return Total()
    raw: dict[str, Any] = json.loads(path.read_text())
    coverage = Counter({(step, fault): count for step, fault, count in raw.pop("coverage")})
    return Total(**raw, coverage=coverage)


def save(path: Path, total: Total) -> None:
    """Keeps the total; whoever is killed while saving loses one chunk at most."""
    raw = vars(total) | {"coverage": [[*at, count] for at, count in sorted(total.coverage.items())]}
    path.parent.mkdir(exist_ok=True)
    (path.parent / ".gitignore").write_text("*\n")
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(raw))
    beside.replace(path)


def run_ranges(
    begin: int,
    end: int,
    profile: str,
    store: str,
    jobs: int,
    report: Callable[[Total, list[Result]], None],
) -> Total:
    """Runs what is missing of [begin, end) and keeps the total after every chunk."""
    path = state_file(profile, store)
    total = load(path)
    chunks = [(low, high, profile, store) for low, high in total.missing(begin, end)]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for low, seconds, results in pool.imap_unordered(_run_chunk, chunks):
            total.add(low, results)
            total.seconds += seconds
            save(path, total)
            report(total, results)
    return total


def _run_chunk(chunk: tuple[int, int, str, str]) -> tuple[int, float, list[Result]]:
    low, high, profile, store = chunk
    began_s = time.process_time()
    results = [run_seed(seed, PROFILES[profile], store=store) for seed in range(low, high)]
    return low, time.process_time() - began_s, results
