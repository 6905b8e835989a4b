from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

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
from bench.peers.rocketmq import server_files
from bench.peers.run import PEERS, PROFILE, PeersRun
from bench.peers.shown import markdown, peers_page
from bench.peers.steps import Sizes, gap_ms
from bench.record import Machine, RunRecord
from bench.room import NoRoom
from ops.setup.jars import Jar, JarSet
from pipeline.page import render

DUE_MS = 1_767_225_600_000
HOUR_MS = 3_600_000


def record(**figures: list[float]) -> RunRecord:
    named = {name.replace("__", "."): values for name, values in figures.items()}
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
        "from_ms=0",
        "quiet_ms=60000",
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


def test_lateness_counts_from_a_moment_on() -> None:
    now_ms = int(time.time() * 1000)
    arrivals = Arrivals(Reading(2, check=True, from_ms=now_ms - HOUR_MS))
    one, other = values(2, now_ms - HOUR_MS)[0], values(2, now_ms - 2 * HOUR_MS)[1]
    arrivals.take([one, other])
    read = Read(**arrivals.read())
    assert HOUR_MS <= read.p50_ms == read.max_ms < HOUR_MS + 60_000


@pytest.mark.parametrize(
    ("gaps", "found"),
    [
        ([(1_000.0, 700.0)], 700),
        ([(1_000 - GAP_MS - 1.0, 700.0)], GAP_MS),  # before the kill
        ([(3_000.0, 700.0)], GAP_MS),  # of the next
        ([(1_050.0, 300.0), (1_500.0, 900.0)], 900),
        ([], GAP_MS),
    ],
)
def test_a_kill_s_gap_is_the_longest_that_begins_with_it(
    gaps: list[tuple[float, float]], found: float
) -> None:
    assert gap_ms(Read(1, 1, 0, 0.0, 0.0, gaps=gaps), killed_ms=1_000, until_ms=2_000) == found


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
    assert {peer.lacks for peer in PEERS if peer.lacks in text} == {PEERS[0].lacks, PEERS[1].lacks}


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


def test_a_disk_without_room_is_refused_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 14 * 10**9}))
    run = PeersRun(PEERS, 1, Sizes())
    with pytest.raises(NoRoom, match=r"has 14\.0 GB free, the peers need 15: make room"):
        run.run(lambda *_: None, lambda _: None)
    assert run.record().failed == {}


def test_rocketmq_listens_where_no_other_machine_reaches_it(tmp_path: Path) -> None:
    files = server_files(tmp_path, names_port=1, broker_port=2, ha_port=3)
    assert all("bindAddress=127.0.0.1" in text.splitlines() for text in files)
