"""A watch that is killed again and again: it goes on where it was, and tells each violation once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError

from delayline.producer import DelayProducer
from ops.stack.ports import HOST, free_port
from tests.integration.raw_produce import produce_raw
from tests.support.cluster import Cluster
from tests.support.tail import Got, read_all
from tests.support.waiting import eventually

PATIENCE_S: Final = 180.0
ROUND: Final = b"round"


def begin(cluster: Cluster, state: Path, *more: str) -> subprocess.Popen[str]:
    environment = os.environ | {
        "DELAYLINE_BOOTSTRAP_SERVERS": cluster.bootstrap,
        "DELAYLINE_ZOOKEEPER": cluster.zookeeper,
        "DELAYLINE_CLUSTER": cluster.name,
        "SPARK_LOCAL_IP": HOST,
    }
    command = [str(Path(sys.executable).parent / "delayline"), "audit", "watch", "--state", str(state), *more]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ask(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
    except (URLError, OSError):
        return 0, ""


def deliver_again(cluster: Cluster, got: Got) -> tuple[str, str]:
    """What nobody has asked for: the violation that it is."""
    headers = [(name.encode(), value) for name, value in got.headers]
    produce_raw(cluster.bootstrap, cluster.target(), got.value, headers, got.key)
    return "duplicated", got.text("delay-source") or ""


def told(cluster: Cluster) -> list[dict[str, Any]]:
    records = read_all(cluster.bootstrap, cluster.names.audit)
    return [json.loads(got.value or b"") for got in records if got.key != ROUND]


def is_being_written(state: Path) -> bool:
    """Whether a round writes down what it keeps: that of the one before is there as well."""
    return len(list(state.glob("round-*"))) > 1


def rounds(cluster: Cluster) -> int:
    return sum(got.key == ROUND for got in read_all(cluster.bootstrap, cluster.names.audit))


def kill_when(cluster: Cluster, state: Path, reached: Callable[[], bool]) -> None:
    """Begins a watch, and kills it as soon as that is so."""
    watch = begin(cluster, state, "--every", "1")
    eventually(reached, "it is at work", PATIENCE_S)
    watch.kill()
    watch.wait()


def test_a_watch_that_is_killed_tells_each_violation_once_and_leaves_none_out(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start("a")
    with DelayProducer(cluster.bootstrap, cluster=cluster.name) as producer:
        for number in range(20):
            producer.schedule(cluster.target(), b"%d" % number, after="1s", id=f"m{number}")
    delivered = cluster.wait_delivered(20)

    state, address = tmp_path / "state", f"{HOST}:{free_port()}"
    watch = begin(cluster, state, "--every", "1", "--http", address)
    eventually(lambda: ask(address, "/readyz")[0] == 200, "the first round has ended", PATIENCE_S)
    assert "is accounted for" in ask(address, "/")[1]
    planted = {deliver_again(cluster, delivered[0])}
    seen = f'delayline_audit_violations_open{{cluster="{cluster.name}",kind="duplicated"}} 1.0'
    eventually(lambda: seen in ask(address, "/metrics")[1], "it is found", PATIENCE_S)
    assert "1 violations stand" in ask(address, "/")[1]
    watch.kill()
    watch.wait()

    planted.add(deliver_again(cluster, delivered[1]))
    kill_when(cluster, state, lambda: is_being_written(state))
    planted.add(deliver_again(cluster, delivered[2]))
    ended = rounds(cluster)
    kill_when(cluster, state, lambda: rounds(cluster) > ended)

    watch = begin(cluster, state, "--once")
    said, _ = watch.communicate(timeout=PATIENCE_S)
    assert watch.returncode == 1, said
    assert Counter((one["state"], one["kind"], one["source"]) for one in told(cluster)) == {
        ("found", *violation): 1 for violation in planted
    }


def test_a_watch_ends_when_it_is_told_to_and_when_another_one_begins(
    cluster: Cluster, tmp_path: Path
) -> None:
    first = begin(cluster, tmp_path / "state", "--every", "1")
    eventually(lambda: rounds(cluster) > 0, "the first round has ended", PATIENCE_S)
    second = begin(cluster, tmp_path / "state", "--every", "1")
    said, _ = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 1
    assert said.rstrip().endswith("this one ends")
    second.send_signal(signal.SIGTERM)
    said, _ = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, said
