"""`delayline audit watch`: the audit that does not end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ops.cli.options import connect, connection_options, round_options
from ops.cli.output import say

if TYPE_CHECKING:
    from ops.watch.rounds import Ended


@click.command(
    "watch",
    epilog="Example: delayline audit watch --state /var/lib/delayline/watch --bootstrap localhost:9092"
    " --zookeeper localhost:2181",
)
@click.option(
    "--state", required=True, metavar="FOLDER", help="Where it keeps what is still open: a folder, or a URI."
)
@click.option("--once", is_flag=True, help="One round: from where the last one ended to now.")
@click.option(
    "--every", "every_s", type=click.FloatRange(min=1), default=60.0, show_default=True, metavar="S",
    help="A round begins so long after the one before has begun.",
)  # fmt: skip
@click.option("--anew", is_flag=True, help="Audit everything once more, whatever was kept.")
@round_options
@click.option(
    "--http", "address", metavar="HOST:PORT", help="Serve a page, /metrics, /livez and /readyz there."
)
@connection_options
def watch_command(
    *,
    state: str,
    once: bool,
    every_s: float,
    anew: bool,
    grace_ms: int,
    replay_window_s: int,
    master: str,
    address: str | None,
    **connection: Any,
) -> int:
    """Prove without end, round after round.

    Each round audits what is new, and what is still open. What is wrong goes to the topic CLUSTER.audit,
    once. Exit code 1 if a violation stands when it ends.
    """
    from ops.spark import spark_errors, stopped_after, watch_session
    from ops.topics.audited import watch_config
    from ops.watch.life import Life, told_from_found
    from ops.watch.rounds import Rounds

    config = connect(connection)
    wanted = partial(watch_config, config, grace_ms=grace_ms, replay_window_ms=1000 * replay_window_s)
    with told_from_found(), Life(config.cluster, config.bootstrap_servers, address, every_s) as life:
        wanted()  # what is wrong with the cluster is said before Spark starts
        say("starting Spark")
        with stopped_after(watch_session(master)) as spark, spark_errors(config.bootstrap_servers):
            rounds = Rounds(spark, wanted, state, anew=anew)
            return life.lead(rounds, once=once, tell=_tell, tell_failed=_tell_failed)


def _tell(one: Ended, took_s: float) -> None:
    from ops.watch.words import told

    say(told(one, took_s))


def _tell_failed(why: str) -> None:
    say(f"a round could not be ended, and is tried again: {why}")
