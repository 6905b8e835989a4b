from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, cast

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from bench.__main__ import main
from bench.figures import kind
from bench.job import JobProcess
from bench.peers import steps
from bench.peers.compared import LINES, Line
from bench.peers.java import LISTS
from bench.peers.job import (
    GAP_MS,
    Arrivals,
    Read,
    Reading,
    Sending,
    arguments,
    messages,
    said,
    understood,
)
from bench.peers.peer import Peer
from bench.peers.rocketmq import server_files
from bench.peers.run import PEERS, PROFILE, PeersRun
from bench.peers.shown import markdown, peers_page
from bench.peers.steps import Sizes, gap_ms
from bench.record import Machine, RunRecord
from bench.room import NoRoom
from ops.setup.jars import Jar, JarSet
from ops.stack.server import Server
from pipeline.page import render

DUE_MS = 1_767_225_600_000
HOUR_MS = 3_600_000


def record(**figures: list[float]) -> RunRecord:
    named = {f"peers.{name.replace('__', '.')}": values for name, values in figures.items()}
    machine = Machine("Linux", "a processor", 2, 4.0, {})
    return RunRecord(PROFILE, "2026-01-01T00:00:00+00:00", 1.0, machine, {"rounds": "3"}, named, {})


def line(name: str) -> Line:
    (found,) = (one for one in LINES if one.name == name)
    return found


def test_a_value_says_when_it_is_due_and_which_it_is() -> None:
    sent = list(messages(Sending(4, first_due_ms=DUE_MS, span_ms=1_000)))
    assert [one.due_ms - DUE_MS for one in sent] == [0, 250, 500, 750]
    assert [one.value[:25] for one in sent[:2]] == [
        b"1767225600000000000000000",
        b"1767225600250000000000001",
    ]
    assert {len(one.value) for one in sent} == {300}


def test_at_a_rate_each_is_due_so_long_after_it_is_sent() -> None:
    before_ms = int(time.time() * 1000)
    (one,) = messages(Sending(1, rate=1_000, lead_ms=HOUR_MS))
    assert before_ms + HOUR_MS <= one.due_ms <= time.time() * 1000 + HOUR_MS


@pytest.mark.parametrize("what", [Sending(3, rate=5, lead_ms=7), Reading(3, check=True, quiet_ms=9)])
def test_a_job_is_understood_as_it_was_said(what: Sending | Reading) -> None:
    assert understood(said(("here", "topic", what))) == ("here", "topic", what)


def test_a_job_in_java_is_told_all_as_words_and_numbers() -> None:
    told = arguments(("here", "topic", Reading(3, check=True)))
    assert told == [
        "address=here",
        "topic=topic",
        "do=read",
        "count=3",
        "check=1",
        "unjudged=0",
        "quiet_ms=600000",
    ]


def values(count: int, due_ms: int) -> list[bytes]:
    return [one.value for one in messages(Sending(count, first_due_ms=due_ms))]


def test_what_comes_again_is_doubled_and_ends_no_wait() -> None:
    arrivals = Arrivals(Reading(2, check=True))
    first, second = values(2, DUE_MS)
    arrivals.take([first, first])
    assert arrivals.go_on
    arrivals.take([second])
    read = Read(**arrivals.read())
    assert (read.came, read.distinct) == (3, 2)


def test_who_has_all_waits_for_no_more() -> None:
    arrivals = Arrivals(Reading(2, check=True))
    arrivals.take(values(2, DUE_MS))
    assert not arrivals.go_on


def test_who_waits_in_vain_goes_on_no_longer() -> None:
    assert not Arrivals(Reading(1, quiet_ms=0)).go_on


def test_what_comes_before_it_is_due_is_early() -> None:
    arrivals = Arrivals(Reading(2, check=True))
    arrivals.take(values(1, int(time.time() * 1000) + HOUR_MS))
    assert Read(**arrivals.read()).early == 1


def test_lateness_is_that_of_all_but_the_first() -> None:
    now_ms = int(time.time() * 1000)
    arrivals = Arrivals(Reading(2, check=True, unjudged=1))
    unjudged, judged = values(2, now_ms - 2 * HOUR_MS)[0], values(2, now_ms - HOUR_MS)[1]
    arrivals.take([unjudged, judged])
    read = Read(**arrivals.read())
    assert HOUR_MS <= read.p50_ms == read.max_ms < HOUR_MS + 60_000


@pytest.mark.parametrize(
    ("gaps", "found"),
    [
        ([(1_000.0, 700.0)], 700),
        ([(900.0, 50_000.0)], 50_000),  # it lasted until after the next kill
        ([(700.0, 250.0)], GAP_MS),  # it was over before the kill
        ([(2_000.0, 700.0)], GAP_MS),  # it came with the next
        ([(1_050.0, 300.0), (1_500.0, 900.0)], 900),
        ([], GAP_MS),
    ],
)
def test_a_kill_s_gap_is_the_longest_until_the_next(gaps: list[tuple[float, float]], found: float) -> None:
    assert gap_ms(Read(1, 1, 0, 0.0, 0.0, gaps=gaps), from_ms=1_000, until_ms=2_000) == found


def test_who_never_comes_back_has_a_gap_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = Arrivals(Reading(2, check=True))
    arrivals.take(values(1, DUE_MS))
    came_ms = time.time() * 1000
    monkeypatch.setattr(time, "time", lambda: came_ms / 1000 + 3_600)
    ((_, long_ms),) = Read(**arrivals.read()).gaps
    assert HOUR_MS <= long_ms < HOUR_MS + 60_000


class Answer:
    """A job that has its result."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def result(self) -> Any:
        return self._result


class Told(Peer):
    """It does nothing; its jobs say what they are told to."""

    name = title = settings = lacks = "told"
    servers = ()

    def __init__(self, folder: Path, *, came: int | None = None, took_s: float = 0.001) -> None:
        super().__init__(folder)
        self._came, self._took_s = came, took_s

    @property
    def holders(self) -> Sequence[Server]:
        return ()

    def topic(self) -> str:
        return "topic"

    def _begin(self, topic: str, what: Sending | Reading) -> JobProcess:
        if isinstance(what, Sending):
            return cast("JobProcess", Answer(self._took_s))
        came = what.count if self._came is None else self._came
        return cast("JobProcess", Answer(asdict(Read(came, came, 0, 1.0, 2.0))))

    def disk_bytes(self) -> int:
        return 0

    def start(self) -> None:
        pass

    def wait_settled(self) -> None:
        pass


TINY = Sizes(pending=1, burst=2, backlog=2, rate=1, rate_s=1, kills=1, warm_up=2)


def test_a_peer_that_loses_messages_has_no_figure_for_how_fast_it_is(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="1 of 2 messages have not come"):
        steps.measure(Told(tmp_path, came=1), TINY)


def test_lateness_at_a_rate_that_was_not_sent_is_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "SLOWER", 1e6)  # all of it is in time
    with pytest.raises(TimeoutError, match="a second of 2000"):
        steps.measure(Told(tmp_path, took_s=3_600), TINY)


def test_memory_that_processes_share_counts_once() -> None:
    assert steps.held_mb([os.getpid()]) > 10
    assert steps.held_mb([2**30]) == 0


def test_more_or_less_is_better_as_the_line_says() -> None:
    measured = record(
        schedule__delayline=[100.0], schedule__rocketmq=[20.0],
        kill__delayline=[50.0], kill__rocketmq=[500.0],
    )  # fmt: skip
    assert line("schedule").times(measured, "rocketmq") == 5
    assert line("kill").times(measured, "rocketmq") == 10


def test_nothing_is_many_times_as_good_as_none() -> None:
    measured = record(kill__delayline=[0.0], kill__rocketmq=[500.0])
    assert line("kill").times(measured, "rocketmq") is None
    assert line("kill").times(measured, "pulsar") is None


def test_the_best_other_is_another() -> None:
    measured = record(kill__delayline=[1.0], kill__rocketmq=[9.0], kill__redis=[5.0])
    assert line("kill").best_other(measured, ["delayline", "rocketmq", "redis"]) == "redis"


def test_the_table_has_each_peer_s_median_and_spread_and_what_it_does_not_do() -> None:
    text = markdown(record(burst__delayline=[900.0, 1_000.0, 2_000.0], burst__rocketmq=[4_000.0]))
    assert "| 1,000 (900 to 2,000) | 4,000 | 4 | 4 (RocketMQ) | ≥ 2 |" in text
    assert {peer.name for peer in PEERS if peer.settings in text} == {"delayline", "rocketmq"}


def test_a_peer_that_failed_is_said_to_have() -> None:
    failed = replace(record(burst__delayline=[1.0]), failed={"pulsar": "round 1: no"})
    assert "Pulsar failed, round 1: no" in markdown(failed)
    assert "round 1: no" in render(peers_page(failed))


def test_the_page_says_in_how_many_lines_the_goal_is_reached() -> None:
    page = peers_page(
        record(
            burst__delayline=[1_000.0], burst__rocketmq=[4_000.0], kill__delayline=[1.0], kill__rocketmq=[2.0]
        )
    )
    assert page.headline.text == "As far ahead of RocketMQ as it should be in 1 of 2 lines"
    assert page.headline.tone == "bad"


def test_sizes_are_scaled_and_rates_are_not() -> None:
    scaled = Sizes().scaled(0.01)
    assert (scaled.pending, scaled.burst, scaled.rate) == (10_000, 5_000, Sizes().rate)


@pytest.mark.parametrize("name", ["rocketmq", "pulsar"])
def test_the_lists_of_jars_name_each_file_once(name: str) -> None:
    wanted = JarSet.load(name, LISTS)
    files = [jar.file for jar in wanted.jars]
    assert len(files) == len(set(files))


def test_a_jar_for_one_kind_of_machine_has_it_in_its_file_s_name() -> None:
    assert Jar("org", "one", "1", "0", "linux-x86_64").file == "one-1-linux-x86_64.jar"


def test_a_run_is_shown_and_compared_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    record(burst__delayline=[1_000.0], burst__rocketmq=[4_000.0], kill__max__redis=[1.0]).save(file)
    shown = CliRunner().invoke(main, ["show", str(file)])
    compared = CliRunner().invoke(main, ["compare", str(file), str(file)])
    assert (shown.exit_code, compared.exit_code) == (0, 0)
    assert "times RocketMQ" in shown.output
    assert "peers.kill.max.redis" in compared.output


def test_a_figure_s_kind_is_that_of_its_line() -> None:
    assert kind("peers.kill.max.redis").says == line("kill.max").says
    assert kind("peers.kill.redis").says == line("kill").says


def test_a_disk_without_room_is_refused_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 14 * 10**9}))
    run = PeersRun(PEERS, 1, Sizes())
    with pytest.raises(NoRoom, match=r"has 14\.0 GB free, the peers need 15: make room"):
        run.run(lambda *_: None, lambda _: None)
    assert run.record().failed == {}


def test_rocketmq_listens_where_no_other_machine_reaches_it(tmp_path: Path) -> None:
    files = server_files(tmp_path, names_port=1, broker_port=2, ha_port=3)
    assert all("bindAddress=127.0.0.1" in text.splitlines() for text in files)
