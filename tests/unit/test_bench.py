from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from bench import ids, loader, markdown, message, model, reader, table, watcher
from bench.__main__ import main
from bench.figures import GOALS, KINDS, Goal, kind, offered_only
from bench.job import JobFailed, work
from bench.loader import Load
from bench.measured import Measured
from bench.page import bench_page
from bench.parts import PartCost
from bench.polls import Polls
from bench.profiles import Profile, profile
from bench.record import Machine, RunRecord, load
from bench.room import NoRoom
from bench.run import UnderWay, settings
from bench.scenarios.failover import gaps, offered_per_s
from bench.scenarios.yardstick import fastest
from ops.demo.measure import Stretch
from pipeline.page import render

MACHINE = Machine("Linux", "a processor", 2, 4.0, {"delayline": "1"})
BEGUN = "2026-01-01T00:00:00+00:00"


def record(**figures: list[float]) -> RunRecord:
    named = {name.replace("__", "."): values for name, values in figures.items()}
    histogram = [0] * len(reader.BUCKETS_MS) + [1]
    return RunRecord("quick", BEGUN, 1.5, MACHINE, {"rounds": "3"}, named, {"lateness.1000": histogram})


def printed(show: Any, *shown: Any, width: int = table.WIDTH, colour: bool = False) -> str:
    console = Console(width=width, force_terminal=colour, color_system="standard" if colour else None)
    with console.capture() as capture:
        show(console, *shown)
    return capture.get()


def line_of(text: str, name: str) -> str:
    (line,) = (line for line in text.splitlines() if name in line)
    return line


def test_a_dated_value_has_the_size_of_the_others_and_says_when_it_is_due() -> None:
    assert len(message.value(3)) == len(message.dated_value(3, 1_767_225_600_000)) == message.VALUE_BYTES
    assert message.due_in(message.dated_value(3, 1_767_225_600_000)) == 1_767_225_600_000


def test_values_do_not_come_again_within_what_a_compressor_looks_at() -> None:
    assert len({message.value(number) for number in range(1_000)}) == 1_000


def test_moments_are_those_at_which_the_share_had_come() -> None:
    read = reader.summarised([(10.0, 50), (20.0, 49), (30.0, 1)], [])
    assert (read.first_ms, read.half_ms, read.most_ms, read.last_ms) == (10.0, 10.0, 20.0, 30.0)


def test_the_longest_pause_is_that_between_two_batches() -> None:
    assert reader.summarised([(10.0, 1), (15.0, 1), (40.0, 1), (42.0, 1)], []).pause_ms == 25.0


def test_percentiles_and_buckets_are_those_of_the_latenesses() -> None:
    late_us = [1_000] * 98 + [2_500, 5_000_000]
    read = reader.summarised([(1.0, 100)], late_us)
    assert (read.min_ms, read.p50_ms, read.p99_ms, read.max_ms) == (1.0, 1.0, 2.5, 5_000.0)
    assert read.histogram[0] == 98
    assert read.histogram[reader.BUCKETS_MS.index(3)] == 1
    assert read.histogram[-1] == 1


def test_a_share_is_held_against_what_it_is_a_share_of() -> None:
    goal = Goal("delivery", 0.7, of="plain.produce", at_least=True)
    assert goal.met({"delivery": 70.0, "plain.produce": 100.0})
    assert not goal.met({"delivery": 69.0, "plain.produce": 100.0})


def test_a_goal_whose_figures_were_not_measured_is_not_judged() -> None:
    assert not Goal("delivery", 0.7, of="plain.produce").measured({"delivery": 1.0})


def test_every_goal_has_a_kind() -> None:
    assert all(kind(goal.figure) in KINDS for goal in GOALS)


@pytest.mark.parametrize(
    ("figure", "unit"),
    [
        ("lateness.1000.rate", "msgs/s"),
        ("lateness.1000.p50", "ms"),
        ("gap.1000", "ms"),
        ("gap.1000.rate", "msgs/s"),
        ("troubled.loss.1000.pause", "ms"),
        ("troubled.loss.1000.rate", "msgs/s"),
        ("scraped.hanging.1000.p99", "ms"),
        ("scraped.hanging.1000.answer", "ms"),
        ("scraped.hanging.1000.scrapes", "scrapes/s"),
        ("scraped.hanging.1000.rate", "msgs/s"),
        ("carried.all.1000.p99", "ms"),
        ("carried.all.1000.carries", "msgs/min"),
    ],
)
def test_a_figure_has_the_unit_of_its_kind(figure: str, unit: str) -> None:
    assert kind(figure).unit == unit


@pytest.mark.parametrize(
    ("figure", "rate", "offered"),
    [
        ("lateness.5000.p99", 4_900.0, None),
        ("lateness.5000.p99", 4_800.0, 4_800.0),
        ("memory.lateness.5000", 4_800.0, 4_800.0),
        ("lateness.50000.p99", 4_800.0, None),
    ],
)
def test_figures_of_a_load_below_98_percent_say_what_was_offered(
    figure: str, rate: float, offered: float | None
) -> None:
    assert offered_only(figure, {"lateness.5000.rate": [5_000.0, rate]}) == offered


def test_a_goal_is_not_met_under_less_than_its_load() -> None:
    short = record(lateness__5000__p99=[10.0], lateness__5000__rate=[4_000.0])
    assert line_of(printed(table.show, short), "p99").endswith("<= 15, offered only 4,000/s")
    assert "0 of 1 goals met" in render(bench_page(short))


def test_a_run_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    kept = record(delivery=[1.0, 3.0, 2.0])
    kept.save(tmp_path / "run.json")
    assert load(tmp_path / "run.json") == kept
    assert kept.medians() == {"delivery": 2.0}


def test_the_table_has_median_spread_and_goal() -> None:
    shown = printed(table.show, record(delivery=[60.0, 80.0, 70.0], plain__produce=[100.0]))
    assert line_of(shown, "delivery").split()[-9:] == [
        "70.0",
        "60.0",
        "80.0",
        "msgs/s",
        "0.70",
        "of",
        "plain,",
        ">=",
        "0.7",
    ]


def test_the_table_has_what_the_run_was_made_with() -> None:
    assert "rounds: 3" in printed(table.show, record(delivery=[1.0]))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_table_loses_columns_and_no_name(width: int) -> None:
    name = "cpu.ingest.broker.random.10m"
    shown = printed(table.show, record(cpu__ingest__broker__random__10m=[1.5]), width=width)
    lines = shown.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("figure"))
    assert lines[begin + 1].split()[0] == name
    assert "1.5" in lines[begin + 1]
    assert all(len(line) <= width for line in lines[begin:])


def compared(before: Sequence[float], after: Sequence[float], name: str = "delivery") -> str:
    shown = printed(table.compare, record(**{name: list(before)}), record(**{name: list(after)}), colour=True)
    return line_of(shown, name)


def test_two_runs_are_compared_by_their_medians() -> None:
    shown = printed(table.compare, record(delivery=[100.0, 110.0]), record(delivery=[150.0, 165.0]))
    assert line_of(shown, "delivery").split() == ["delivery", "105", "158", "1.50", "msgs/s", "better"]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([100.0, 110.0], [120.0, 130.0], "better"),
        ([100.0, 110.0], [80.0, 90.0], "worse"),
        ([100.0, 110.0], [105.0, 130.0], None),
        ([100.0, 110.0], [100.0, 110.0], None),
        ([100.0], [130.0], None),
    ],
)
def test_better_or_worse_is_said_where_the_rounds_do_not_overlap(
    before: list[float], after: list[float], verdict: str | None
) -> None:
    line = compared(before, after)
    assert [word for word in ("better", "worse") if word in line] == ([verdict] if verdict else [])
    assert ("\x1b[32m" in line, "\x1b[31m" in line) == (verdict == "better", verdict == "worse")


def test_less_is_better_where_it_is_time() -> None:
    assert "better" in compared([2.0, 3.0], [1.0, 1.5], "restart.random.1m")


def test_figures_of_one_run_alone_are_listed_and_said() -> None:
    shown = printed(table.compare, record(delivery=[1.0]), record(burst__last=[2.0]))
    assert line_of(shown, "delivery").split() == [
        "delivery",
        "1.0",
        "-",
        "msgs/s",
        "only",
        "in",
        "the",
        "first",
    ]
    assert line_of(shown, "burst.last").split() == [
        "burst.last",
        "-",
        "2.0",
        "ms",
        "only",
        "in",
        "the",
        "second",
    ]


def test_what_makes_two_runs_hard_to_compare_is_said() -> None:
    first = record(delivery=[1.0])
    second = RunRecord("full", BEGUN, 1.0, MACHINE, {"rounds": "1"}, {"delivery": [1.0]}, {})
    shown = printed(table.compare, first, second)
    assert "not the same: profile: quick | full" in shown
    assert "not the same: rounds: 3 | 1" in shown
    assert "not the same: processor" not in shown


def test_the_parts_are_shown_with_their_sum() -> None:
    shown = printed(table.show_parts, [PartCost("fetch", 0.5, 1.0), PartCost("put", 1.5, 2.0)])
    assert line_of(shown, "all").split() == ["all", "2.00", "3.00"]


def test_what_a_reader_costs_is_shown_by_rate() -> None:
    shown = printed(table.show_polls, {0: Polls(0, 5, 4.25, 0, 0), 1000: Polls(1000, 180, 65, 8, 26.5)})
    assert line_of(shown, "1,000").split() == ["1,000", "1,000", "180", "65.0", "8.0", "26.5"]


def test_the_page_shows_every_figure_and_how_many_goals_were_met() -> None:
    html = render(bench_page(record(delivery=[60.0], plain__produce=[100.0], memory__delivery=[1.0])))
    assert "0 of 1 goals met" in html
    assert all(name in html for name in ("delivery", "plain.produce", "memory.delivery"))


def test_a_page_without_goals_claims_none() -> None:
    page = bench_page(record(memory__delivery=[1.0]))
    assert (page.headline.text, page.headline.tone) == ("No figure that has a goal was measured", "plain")


def test_a_page_says_what_failed() -> None:
    failed = RunRecord("quick", BEGUN, 1.0, MACHINE, {}, {}, {}, {"burst": "round 1: nothing came"})
    page = bench_page(failed)
    assert page.headline.tone == "bad"
    assert "nothing came" in render(page)


def test_markdown_has_the_figures_by_kind_beside_those_before() -> None:
    now = record(
        delivery=[60.0, 80.0, 70.0],
        plain__produce=[100.0],
        gap__1000__undisturbed=[9.0],
        gap__1000=[20.0, 30.0],
    )
    assert markdown.rendered(now, record(delivery=[35.0])) == (
        "| figure | before | median | least | most | goal |\n"
        "|---|---:|---:|---:|---:|---|\n"
        "| *plain producer, the best of a sweep, msgs/s* |  |  |  |  |  |\n"
        "| `plain.produce` |  | 100 | 100 | 100 |  |\n"
        "| *overdue backlog to the target, msgs/s* |  |  |  |  |  |\n"
        "| `delivery` | 35.0 | 70.0 | 60.0 | 80.0 | 0.70 of plain, >= 0.7 |\n"
        "| *longest pause round each kill, ms* |  |  |  |  |  |\n"
        "| `gap.1000` |  | 25.0 | 20.0 | 30.0 | <= 50 |\n"
        "| *longest pause in two calm seconds before each kill, ms* |  |  |  |  |  |\n"
        "| `gap.1000.undisturbed` |  | 9.0 | 9.0 | 9.0 |  |\n"
    )


def test_markdown_of_one_run_has_no_column_for_another(tmp_path: Path) -> None:
    record(delivery=[60.0]).save(tmp_path / "run.json")
    result = CliRunner().invoke(main, ["show", "--markdown", str(tmp_path / "run.json")])
    assert result.output.startswith("| figure | median | least | most | goal |\n|---|---:|---:|---:|---|\n")


def test_the_docs_command_replaces_what_is_between_the_markers(tmp_path: Path) -> None:
    record(delivery=[60.0]).save(tmp_path / "run.json")
    page = tmp_path / "page.md"
    page.write_text("head\n\n<!-- figures -->\nold\n<!-- /figures -->\n\ntail\n")
    CliRunner().invoke(main, ["docs", str(tmp_path / "run.json"), "--page", str(page)])
    head, _, tail = page.read_text().partition(markdown.rendered(load(tmp_path / "run.json"), before()))
    assert (head, tail) == ("head\n\n<!-- figures -->\n", "<!-- /figures -->\n\ntail\n")


def before() -> RunRecord:
    return load(markdown.BEFORE)


@pytest.mark.parametrize(("profile_name", "section"), [("quick", "figures"), ("troubled", "troubled")])
def test_a_page_without_markers_is_refused(profile_name: str, section: str) -> None:
    with pytest.raises(markdown.NoPlace, match=f"lacks <!-- {section} -->"):
        markdown.replaced(f"<!-- /{section} -->", "table", profile_name)


@pytest.mark.parametrize("profile_name", ["quick", "full", "troubled", "lanes"])
def test_the_benchmark_page_has_a_place_for_the_figures(profile_name: str) -> None:
    assert "table\n" in markdown.replaced(markdown.PAGE.read_text(), "table\n", profile_name)


def test_the_quick_profile_has_nothing_of_ten_millions() -> None:
    quick = {name for name, _ in profile("quick", 1).scenarios}
    full = {name for name, _ in profile("full", 1).scenarios}
    assert full - quick == {"ingest-rising-10m", "ingest-random-10m", "ingest-ids-10m"}


def test_the_troubled_profile_has_each_trouble_and_its_absence() -> None:
    names = [name for name, _ in profile("troubled", 1).scenarios]
    assert names == [f"troubled-{one}" for one in ("none", "missing", "forbidden", "leaderless", "loss")]


def test_the_scraped_profile_has_each_way_to_read_the_metrics_and_none() -> None:
    names = [name for name, _ in profile("scraped", 1).scenarios]
    assert names == ["scraped-none", "scraped-scraped", "scraped-hanging"]


def test_the_carried_profile_measures_the_same_with_and_without_carries() -> None:
    assert [name for name, _ in profile("carried", 1).scenarios] == ["carried-nothing", "carried-all"]


def test_scrapes_come_to_their_rate_and_the_longest_answer() -> None:
    assert watcher.summarised([0.01, 0.25, 0.02], 1.5) == watcher.Watched(2.0, 250.0)


def test_only_takes_the_scenarios_whose_names_begin_so() -> None:
    chosen = profile("quick", 1).only(["ingest-ra", "failover-1000"])
    assert [name for name, _ in chosen.scenarios] == ["ingest-random"]
    assert [name for name, _ in chosen.failovers] == ["failover-1000", "failover-10000"]


def test_a_name_that_no_scenario_has_is_refused_with_those_that_there_are() -> None:
    result = CliRunner().invoke(main, ["run", "--only", "burst", "--only", "nothing"])
    assert result.exit_code == 2
    assert "no scenario begins with 'nothing': there are yardstick, ingest-rising," in result.output


def test_a_disk_without_room_for_ten_millions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 9 * 10**9}))
    profile("quick", 1).expect_room(tmp_path)
    with pytest.raises(NoRoom, match=r"has 9\.0 GB free, the scenarios need 24: make room"):
        profile("full", 1).expect_room(tmp_path)


def under_way(kept: list[RunRecord]) -> UnderWay:
    return UnderWay(Profile("quick", 2, [], []), {"rounds": "2"}, lambda *_: None, kept.append)


def failing(error: BaseException) -> Measured:
    raise error


def test_a_failure_is_kept_and_the_others_go_on() -> None:
    kept: list[RunRecord] = []
    run = under_way(kept)
    run.measure("both", 1, lambda: Measured({"both.ingest": 1.0}))
    run.measure("burst", 1, lambda: failing(TimeoutError("nothing came\nfor 60 s")))
    run.measure("control", 2, lambda: failing(KeyError("x")))
    run.measure("both", 2, lambda: Measured({"both.ingest": 3.0}))
    assert [dict(one.figures) for one in kept] == [{"both.ingest": [1.0]}] * 3 + [{"both.ingest": [1.0, 3.0]}]
    assert kept[-1].failed == {"burst": "round 1: nothing came for 60 s", "control": "round 2: KeyError: 'x'"}


def test_an_interrupted_run_is_kept() -> None:
    kept: list[RunRecord] = []
    run = under_way(kept)
    run.measure("both", 1, lambda: Measured({"both.ingest": 1.0}))
    with pytest.raises(KeyboardInterrupt):
        run.measure("burst", 1, lambda: failing(KeyboardInterrupt()))
    assert (kept[-1].figures, kept[-1].failed) == ({"both.ingest": [1.0]}, {"burst": "round 1: interrupted"})


def test_the_table_says_what_failed() -> None:
    failed = RunRecord("quick", BEGUN, 1.0, MACHINE, {}, {}, {}, {"burst": "round 1: nothing came"})
    assert "FAILED burst: round 1: nothing came" in printed(table.show, failed)


@pytest.mark.parametrize(("failed", "code"), [({}, 0), ({"burst": "round 1: nothing came"}, 1)])
def test_a_run_ends_with_1_if_a_scenario_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: dict[str, str], code: int
) -> None:
    result = invoked(tmp_path, monkeypatch, lambda keep: keep(keepable(failed)))
    assert result.exit_code == code
    assert len(list(tmp_path.glob("*-quick.json"))) == 1


def test_an_interrupted_run_ends_with_130_and_shows_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(keep: Any) -> None:
        keep(keepable({}))
        raise KeyboardInterrupt

    result = invoked(tmp_path, monkeypatch, interrupted)
    assert result.exit_code == 130
    assert "delivery" in result.output
    assert "Traceback" not in result.output


def keepable(failed: dict[str, str]) -> RunRecord:
    return RunRecord("quick", BEGUN, 1.0, MACHINE, {}, {"delivery": [1.0]}, {}, failed)


def invoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any) -> Any:
    monkeypatch.setattr("bench.__main__.FOLDER", tmp_path)
    monkeypatch.setattr("bench.run.run", lambda *arguments: run(arguments[2]))
    return CliRunner().invoke(main, ["run", "--only", "burst"])


def test_what_a_scenario_repeats_is_kept_one_by_one() -> None:
    kept: list[RunRecord] = []
    under_way(kept).measure(
        "failover-1000", 1, lambda: gaps("gap.1000", [30.0, 10.0, 20.0], [5.0, 7.0], 999.0, 1)
    )
    figures = kept[-1].figures
    assert figures["gap.1000"] == [30.0, 10.0, 20.0]
    assert figures["gap.1000.undisturbed"] == [5.0, 7.0]
    assert (figures["gap.1000.p90"], figures["gap.1000.max"]) == ([30.0], [30.0])
    assert (figures["gap.1000.rate"], figures["gap.1000.unasked"]) == ([999.0], [1.0])


def test_what_was_due_within_a_stretch_was_offered_in_it() -> None:
    assert offered_per_s([999, 1_000, 2_000, 3_000, 3_001], Stretch(1_000.0, 3_000.0)) == 1.5


def test_a_worker_that_fails_says_why_in_one_line() -> None:
    with pytest.raises(JobFailed, match=r"^bench\.reader: KeyError: 'offsets'$"):
        work("bench.reader", {})


def test_the_best_settings_are_those_with_the_least_median() -> None:
    assert fastest([{"a": 1}, {"a": 2}], [[1.0, 5.0], [4.0, 3.0], [4.0, 3.0]]) == {"a": 2}


def test_the_settings_say_where_the_nodes_differ_from_their_defaults() -> None:
    said = settings(profile("quick", 3))
    assert said["node"].endswith("but a session of 20 s (failover: 2 s)")
    assert "-XX:+UseG1GC" in said["broker"]


def test_measurements_of_one_scenario_are_joined() -> None:
    both = Measured({"a": 1.0}) | Measured({"b": 2.0}, {"h": [1]}, {"s": "x"}, {"c": [3.0]})
    assert both == Measured({"a": 1.0, "b": 2.0}, {"h": [1]}, {"s": "x"}, {"c": [3.0]})


@pytest.mark.parametrize("content", [b"{}", b"\xff\xfe", b'{"profile": "\xff"}', b""])
def test_a_file_that_is_no_run_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    result = CliRunner().invoke(main, ["show", str(tmp_path / "run.json")])
    assert result.exit_code == 1
    assert "is no run of the benchmark" in result.output
    assert "Traceback" not in result.output


def test_ids_are_measured_beside_the_same_without_them() -> None:
    found = ids.measure(pending=600, rounds=2, messages=600)
    assert [len(rounds) for rounds in found.values()] == [2, 2]
    assert all(one.per_s > 0 and one.held_ms > 0 for rounds in found.values() for one in rounds)
    shown = printed(table.show_ids, found)
    assert "with ids" in shown
    assert "of the rate without" in shown


def test_a_control_names_an_id_that_was_scheduled() -> None:
    pending = Load("", "", "orders", 100, ids=True)
    scheduled, cancelled, kept = (
        [key for key, _, _ in loader._records(load)]
        for load in (pending, replace(pending, op="cancel"), replace(pending, if_exists="keep"))
    )
    assert scheduled == cancelled == kept
    assert len(set(scheduled)) == 100


def lanes_record(**figures: float) -> RunRecord:
    return record(**{name: [value] for name, value in figures.items()})


@pytest.mark.parametrize(
    ("cores", "lanes", "rate"), [(2, 1, 100_000), (8, 1, 100_000), (2, 4, 125_000), (8, 4, 400_000)]
)
def test_lanes_carry_what_a_core_does_of_each_and_all_cores_do_of_all(
    cores: int, lanes: int, rate: float
) -> None:
    assert model.Costs(lane_per_s=100_000, node_us=10, broker_us=6).messages_per_s(cores, lanes) == rate


def test_the_model_stands_beside_what_was_measured_on_as_many_cores() -> None:
    costs = {f"cpu__lanes__1__{done}__{who}": 5.0 for done in model.DONE for who in ("node", "broker")}
    costs |= {f"lanes__1__{done}": 120_000.0 for done in model.DONE}
    text = model.rendered(lanes_record(lanes__2__delivery=150_000, **costs))
    assert text.count("(measured: 150,000)") == 1
    assert "| 2 cores, msgs/s | 120,000 (measured: 120,000) | 200,000 (measured: 150,000) |" in text


def test_a_run_without_costs_of_lanes_has_no_model() -> None:
    with pytest.raises(model.NoCosts, match=r"cpu\.lanes\.1\.ingest\.node"):
        model.rendered(lanes_record(burst__last=1))
