"""What all tests share: groups and deadlines by folder, a real Kafka and ZooKeeper, names of their own."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from ops.stack import LocalStack
from tests.lender import Lender, borrowed
from tests.stacks import Stack, containers_stack, outside_stack
from tests.support.browser import NO_BROWSER, find_browser
from tests.workers import FileByFile, place

# Group (the folder's name, and the marker's) -> deadline of one of its tests, seconds.
# A simulation is a minute's reckoning, and four workers share two cores of a machine that may be slow.
DEADLINES_S = {"unit": 60, "simulation": 600, "integration": 120, "chaos": 240}
# Of a test with Spark: for the first one Spark starts, and many histories are written and audited. Alone on a
# slow machine that takes two minutes, and four workers share two cores. It is there for what hangs.
SPARK_DEADLINE_S = 900
# What the whole run may take on two cores, seconds; and what the tests of a group may take together, four of
# them side by side. Both are printed at the end.
LIMIT_S = 900
BUDGETS_S = {"unit": 60, "simulation": 300, "integration": 1800, "chaos": 780}
_LOG_LINES = 60
_TESTS = Path(__file__).parent
_lender = pytest.StashKey[Lender]()
_begun_s = time.monotonic()
_spent_s = dict.fromkeys(BUDGETS_S, 0.0)

# A shell ignores the keyboard's interrupt for what it runs in the background, and what ignores it hands that
# on: the programs that the tests start are to end by it all the same.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run: what fails once fails again, and a slow machine is no failure. To look for
# more: HYPOTHESIS_EXAMPLES=2000, with other examples each time.
_EXAMPLES = os.environ.get("HYPOTHESIS_EXAMPLES")
settings.register_profile(
    "tests",
    max_examples=int(_EXAMPLES or 100),
    derandomize=_EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck) if _EXAMPLES else [],
)
settings.load_profile("tests")


def pytest_report_header() -> str | None:
    return None if find_browser() else f"the tests of the pages will fail: {NO_BROWSER}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = item.path.relative_to(_TESTS).parts[0]
        item.add_marker(group)
        if item.get_closest_marker("timeout") is None:
            has_spark = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.timeout(SPARK_DEADLINE_S if has_spark else DEADLINES_S[group]))
    items.sort(key=lambda item: place(item.nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return FileByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    if _lender not in node.config.stash:
        node.config.stash[_lender] = lender = Lender()
        node.config.add_cleanup(lender.close)
    node.workerinput["lender"] = node.config.stash[_lender].address


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What fails shows how the logs of its nodes end."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and call.when == "call" and folder is not None:
        for log in sorted(folder.glob("cluster-*/*.log")):
            lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            report.sections.append((f"the end of {log.name}", "\n".join(lines)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _spent_s[Path(report.nodeid).parts[1]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    unseen = sum(NO_BROWSER in report.longreprtext for report in terminalreporter.getreports("error"))
    if unseen:
        terminalreporter.section(f"{unseen} tests of the pages have not run")
        terminalreporter.write_line(NO_BROWSER)
    terminalreporter.section("time and budget of each group, and of the run")
    budgets = [(group, spent_s, BUDGETS_S[group]) for group, spent_s in _spent_s.items()]
    for name, spent_s, budget_s in [*budgets, ("the run", time.monotonic() - _begun_s, LIMIT_S)]:
        over = "  OVER ITS BUDGET" if spent_s > budget_s else ""
        terminalreporter.write_line(f"{name:12} {spent_s:6.0f} s of {budget_s:4} s{over}")


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A real Kafka and ZooKeeper for all tests that do not stop them.

    Started when the first test asks, for all workers. ``DELAYLINE_TEST_BOOTSTRAP`` with
    ``DELAYLINE_TEST_ZOOKEEPER`` name a cluster to use instead; ``DELAYLINE_TEST_CONTAINERS=1`` asks for
    containers.
    """
    outside = outside_stack(os.environ)
    lender: str | None = getattr(request.config, "workerinput", {}).get("lender")
    if outside is not None:
        yield outside
    elif os.environ.get("DELAYLINE_TEST_CONTAINERS") == "1":
        with containers_stack() as contained:
            yield contained
    elif lender is not None:
        yield borrowed(lender, tmp_path_factory.getbasetemp().parent / "stack")
    else:
        with LocalStack(tmp_path_factory.mktemp("stack")) as local:
            yield local


@pytest.fixture
def cluster_name(request: pytest.FixtureRequest) -> str:
    """A cluster name of this test alone, fit for topics and znodes: tests on one stack never meet."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"t-{words[:30].strip('-')}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def private_stack(tmp_path: Path) -> Iterator[Callable[..., LocalStack]]:
    """Start a local stack of this test's own, to kill and pause; takes the options of `LocalStack`."""
    started: list[LocalStack] = []
    numbers = itertools.count()

    def start(**options: Any) -> LocalStack:
        private = LocalStack(tmp_path / f"stack-{next(numbers)}", **options)
        started.append(private)
        private.start()
        return private

    yield start
    for private in started:
        private.stop()
