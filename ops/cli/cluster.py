"""`delayline cluster`: who is there, who leads, how far everybody is; and what operators do about it."""

from __future__ import annotations

from typing import Any

import click

from ops.cli import cluster_status
from ops.cli.operator import agree, agreed, author, expect_answer, operator_options, timeout_option
from ops.cli.options import connect, connection_options
from ops.cli.output import Format, emit, emit_one, output_option, say


@click.group("cluster", commands=[cluster_status.status])
def cluster_group() -> None:
    """Show the nodes, their lanes and leaders; pause, resume, hand leadership over."""


_TIMEOUT = timeout_option(60.0, "How long to wait for it to come to pass.")
_TARGETS = click.option(
    "--target", "targets", metavar="TOPIC", multiple=True, help="This target topic alone; may be repeated."
)


@cluster_group.command(
    epilog="Example: delayline cluster pause --target orders --reason 'orders is being moved' --confirm delay"
)
@_TARGETS
@_TIMEOUT
@operator_options
@output_option
@connection_options
def pause(
    output: Format, targets: tuple[str, ...], timeout_s: float, confirm: str | None, **options: Any
) -> None:
    """Stop all deliveries, or those to some targets, until they are resumed; whoever is leader.

    Requests are applied as ever. What falls due meanwhile is delivered when it is resumed, in order. Returns
    when every node that is there knows; exit code 6 if one does not answer in time.
    """
    from ops.cluster import pause

    what = f"deliveries to {', '.join(targets)} stop" if targets else "all deliveries stop"
    config, by = agreed(options, confirm, what)
    done = pause.pause(config, targets, by, timeout_s)
    _emit_pause(output, done)


@cluster_group.command(
    epilog="Example: delayline cluster resume --target orders --reason 'it is back' --confirm delay"
)
@_TARGETS
@_TIMEOUT
@operator_options
@output_option
@connection_options
def resume(
    output: Format, targets: tuple[str, ...], timeout_s: float, confirm: str | None, **options: Any
) -> None:
    """Go on after a pause of the whole cluster, or of some targets.

    Returns when every node that is there knows. Exit code 3 if it is not paused. A target that was paused by
    itself stays so when the cluster is resumed. Once it is resumed, what waits for it is delivered in order,
    beside what falls due; `cluster status` says how much is left.
    """
    from ops.cluster import pause

    what = f"deliveries to {', '.join(targets)} go on" if targets else "deliveries go on"
    config, by = agreed(options, confirm, what)
    done = pause.resume(config, targets, by, timeout_s)
    _emit_pause(output, done)
    if targets:
        say("what waits for it is delivered in order: 'delayline cluster status' says how much is left")


def _emit_pause(output: Format, done: Any) -> None:
    pauses = done.pauses
    values = {
        "cluster": done.cluster,
        "paused": pauses.paused is not None,
        "paused_targets": sorted(pauses.paused_targets),
        "nodes": list(done.nodes),
        "took_s": round(done.took_s, 3),
    }
    if output == "table":
        values["paused_targets"] = " ".join(values["paused_targets"]) or None
        values["nodes"] = " ".join(values["nodes"]) or None
    emit_one(output, values)
    for word in done.words:
        say(word)


@cluster_group.command(
    epilog="Example: delayline cluster switchover --to node-2 --reason 'node-1 is restarted' --confirm delay"
)
@click.option("--to", metavar="NODE", help="The next leader (default: whoever is next).")
@click.option("--lane", type=int, help="Which lane's (default: the node's, or the only one).")
@_TIMEOUT
@operator_options
@output_option
@connection_options
def switchover(
    output: Format, to: str | None, lane: int | None, timeout_s: float, confirm: str | None, **options: Any
) -> None:
    """Hand leadership over to another node, in order: the leader finishes its transaction first.

    Returns when the new leader delivers. Exit code 3 if there is no leader, or the node is no candidate; 5 if
    it is leader already, or there is no other one; 6 if it did not come to pass in time.
    """
    from ops.cluster import switchover as handing

    config, by = agreed(options, confirm, f"leadership goes to {to or 'the next candidate'}")
    done = handing.switchover(config, lane, to, by, timeout_s)
    emit_one(
        output,
        {
            "lane": done.lane,
            "before": done.before,
            "leader": done.leader,
            "epoch": done.epoch,
            "took_s": round(done.took_s, 3),
        },
    )


@cluster_group.command(
    "accept-gap",
    epilog="Example: delayline cluster accept-gap --reason 'retention too short' --execute --confirm delay",
)
@click.option("--lane", type=int, default=0, show_default=True, help="Which lane's.")
@click.option("--node", metavar="NODE", help="The node to go on with (default: the one that has read most).")
@click.option("--execute", is_flag=True, help="Do it (default: say what would be lost).")
@_TIMEOUT
@operator_options
@output_option
@connection_options
def accept_gap(
    output: Format,
    lane: int,
    node: str | None,
    timeout_s: float,
    confirm: str | None,
    *,
    execute: bool,
    **options: Any,
) -> None:
    """Give up what retention has taken before any node had read it, and go on with what is there.

    Nodes refuse with retention-gap while that may be missing. What is pending on the node that goes on stays;
    lost is what was requested, or said again, between what it has read and where the log begins now. One
    without a view has as good as read what the last checkpoint says that nobody needs. Nodes that have read
    more or less go on refusing, for their views would differ. Exit code 5 if there is nothing to accept.
    """
    from ops.cluster import accept_gap as gaps

    if execute:
        expect_answer(confirm)
    by = author(options)
    config = connect(options)
    found = gaps.survey(config, lane, node)
    rows = [
        {"partition": one.partition, "read": one.read, "begins": one.begin, "lost": one.lost}
        for one in found.parts
    ]
    if execute:
        agree(config.cluster, confirm, f"up to {found.lost} requests are lost")
        gaps.accept(config, found, by, timeout_s)
    data = {"lane": lane, "goes_on": list(found.goes_on), "goes_on_refusing": list(found.left)}
    emit(output, rows, _GAP_COLUMNS, data=data | {"partitions": rows, "accepted": execute})
    on, going = ", ".join(found.goes_on), "goes" if execute else "would go"
    if found.begins:
        say(f"{on} {going} on without a view, with what the log says again of what waits")
        say("where outcomes are lost, too, what repeats an earlier request may be taken for a new one")
    else:
        say(f"{on} {going} on, with all that is pending there")
    if found.left:
        say(f"{', '.join(found.left)}: other rows than that, so it goes on refusing; empty its data folder")
    if not execute:
        say("dry run: nothing was changed; a node that is down may have read more: start it first. --execute")


@cluster_group.command(
    "accept-kafka",
    epilog="Example: delayline cluster accept-kafka --reason 'restored' --execute --confirm delay",
)
@click.option("--execute", is_flag=True, help="Do it (default: say what follows).")
@operator_options
@output_option
@connection_options
def accept_kafka(output: Format, confirm: str | None, *, execute: bool, **options: Any) -> None:
    """Say that the Kafka of this command is the one that the cluster is in, though its id is another.

    Nodes refuse with other-kafka where it is not. Right after Kafka was restored or moved with its topics;
    wrong where bootstrap_servers or zookeeper is another cluster's. Nodes that refuse are started again
    afterwards. Exit code 5 if there is nothing to accept, or a node works in the Kafka that it was in.
    """
    from ops.cluster import accept_kafka

    if execute:
        expect_answer(confirm)
    by = author(options)
    config = connect(options)
    found = accept_kafka.survey(config)
    if execute:
        agree(config.cluster, confirm, f"the cluster is in the Kafka {found.after} from now on")
        accept_kafka.accept(config, found, by)
    emit_one(
        output, {"before": found.before, "after": found.after, "buffer": found.buffer, "accepted": execute}
    )
    if found.buffer != "the same":
        say(
            f"its buffer topic is {found.buffer}: what is pending in the other Kafka is not here, and the"
            " nodes will refuse and say what to do"
        )
    if not execute:
        say("dry run: nothing was changed. --execute")


_GAP_COLUMNS = {"partition": "partition", "read": "read to", "begins": "begins at", "lost": "lost at most"}


@cluster_group.command(
    epilog="Example: delayline cluster remove node-3 --reason 'its machine is gone' --confirm delay"
)
@click.argument("node")
@operator_options
@output_option
@connection_options
def remove(output: Format, node: str, confirm: str | None, **options: Any) -> None:
    """Take a dead NODE's znodes away: its member znode and its candidacies.

    They go by themselves once its session has timed out. Exit code 5 if it lives, 3 if there is no such node.
    """
    from ops.cluster import remove

    config, by = agreed(options, confirm, f"the znodes of {node} are removed")
    emit_one(output, {"node": node, "removed": remove.remove(config, node, by)})
