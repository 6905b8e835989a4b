"""The faults that a seed draws: each strikes one process, or what they all depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from node.core.ports import Pauses
from tests.simulation.process import Node, Process
from tests.simulation.snapshots import begin_from_peer

if TYPE_CHECKING:
    from tests.simulation.world import World

# These wait for the next call of their kind by the process that they are meant for.
ARMED: Final = frozenset(
    (
        "commit-lost",
        "commit-answer-lost",
        "commit-late",
        "commit-aborted",
        "send-fails",
        "open-fails",
        "read-fails",
        "learn-fails",
        "targets-forgotten",
    )
)
# These strike what all processes depend on.
SHARED: Final = frozenset(
    (
        "zookeeper-outage",
        "broker-clock-step",
        "clocks-jump",
        "foreign-stall",
        "checkpoints-lost",
        "checkpoints-truncated",
        "checkpoints-held",
        "key-changed",
        "keys-lost",
        "strange-checkpoint",
        "target-leader-lost",
        "operator-pause",
        "retention",
        "settings-changed",
        "leaderless",
        "outcomes-lost",
    )
)
SESSION_MS: Final = 400
DAY_MS: Final = 86_400_000
MOST_ARMED: Final = 2


def strike(world: World) -> None:
    """Draws a fault and lets it strike."""
    rng = world.rng
    weights = world.setup.profile.faults
    fault: str = rng.choices(list(weights), list(weights.values()))[0]
    if fault in SHARED:
        _strike_shared(world, fault)
        return
    node = _victim(world, fault)
    if node is None or node.process is None:
        return
    process = node.process
    if fault in ARMED:
        if len(process.armed) < MOST_ARMED:
            process.armed.append(fault)
        return
    world.struck(process, fault)
    if fault in {"crash", "crash-leader", "empty", "snapshot"}:
        crash(world, node, emptied=fault in {"empty", "snapshot"})
        if fault == "snapshot":
            begin_from_peer(world, node)
    elif fault == "clock-step":
        node.skew_ms = world.draw_skew_ms()
    elif fault == "resign":
        process.resign_asked = True
        process.wake()
    else:
        _impair(world, process, fault)


def _strike_shared(world: World, fault: str) -> None:
    rng = world.rng
    world.struck_shared(fault)
    if fault == "zookeeper-outage":
        world.ensemble.up = False
        world.after(rng.randint(50, 2 * SESSION_MS), world.restore_zookeeper)
    elif fault in {"broker-clock-step", "clocks-jump"}:
        _set_clocks(world, fault)
    elif fault == "target-leader-lost":
        topic = rng.choice(sorted(world.target_topics))
        world.leaderless.add(topic)
        world.after(rng.choice((20, 500, 2_000, 6_000)), lambda: world.leaderless.discard(topic))
    elif fault == "operator-pause":
        targets = rng.sample(sorted(world.target_topics), rng.randint(0, 2))
        world.pause(Pauses(rng.random() < 0.5, frozenset(targets)))
        world.after(rng.choice(world.setup.profile.pause_ms), lambda: world.pause(Pauses()))
    elif fault == "retention":
        _remove_records(world)
    elif fault == "settings-changed":
        world.settings_operator.change(rng.choice((0, 0, 20, 300, 1_000)))
    elif fault in {"leaderless", "outcomes-lost"}:
        _stop_all(world) if fault == "leaderless" else world.lose_outcomes()
    elif fault.startswith("key"):
        world.change_key() if fault == "key-changed" else world.lose_keys()
    elif "checkpoint" in fault:
        _harm_checkpoints(world, fault)
    else:
        world.open_foreign(rng.choice((50, 300, 1_200, 5_000)))


def _remove_records(world: World) -> None:
    """Retention removes some of what the last checkpoint says is not needed; who has not read that begins
    anew.
    """
    carried = world.last_carried()
    for number, end in carried.items():
        partition = world.topics[world.names.buffer][number]
        partition.begin = world.rng.randint(partition.begin, max(partition.begin, end))
    for node in world.nodes:
        if node.process is not None and node.process.lacks_records:
            crash(world, node, emptied=True)


def _stop_all(world: World) -> None:
    """All nodes are stopped, and are away for most of the retention; not while they still have to make up for
    the last time.
    """
    retention_ms = world.setup.settings.retention_ms
    assert world.retention is not None, "for how long, is a question of retention"
    assert retention_ms is not None, "the profile has one"
    running = [node for node in world.nodes if node.process is not None]
    if len(running) == len(world.nodes) and world.retention.lets_begin():
        away_ms = world.rng.randint(retention_ms // 4, retention_ms * 8 // 10)
        for node in running:
            stop(world, node, away_ms)


def stop(world: World, node: Node, away_ms: int) -> None:
    """The process ends in good order, and comes back."""
    process = node.process
    assert process is not None, "only the living end"
    process.kill()
    node.process = None
    world.ensemble.remove(process)
    world.after(away_ms, lambda: world.start(node))


def _harm_checkpoints(world: World, fault: str) -> None:
    if fault == "checkpoints-lost":
        _crash_leaders(world)
        world.lose_checkpoints()
    elif fault == "checkpoints-truncated":
        if world.rng.random() < 0.6:
            _crash_leaders(world)
        world.lose_end_of_checkpoints()
    elif fault == "strange-checkpoint":
        world.forge_checkpoint()
    else:
        world.hold_checkpoints(world.rng.choice((50, 300, 1_200)))


def _crash_leaders(world: World) -> None:
    for node in world.nodes:
        if node.process is not None and node.process.leadership is not None:
            crash(world, node, emptied=False)


def _set_clocks(world: World, fault: str) -> None:
    rng = world.rng
    if fault == "broker-clock-step":
        partition = rng.choice(world.setup.partitions)
        world.broker_skew_ms[partition] = world.draw_skew_ms()
    else:
        world.jump(rng.choice((-2_000, 700, 2_000, 6_000, DAY_MS)))
        world.after(rng.choice((100, 700, 1_500, 3_000)), lambda: world.jump(0))


def _victim(world: World, fault: str) -> Node | None:
    """Mostly one that is delivering, or believes that it is leader."""
    alive = [node for node in world.nodes if node.process is not None]
    leaders = [node for node in alive if node.process is not None and node.process.leadership is not None]
    if fault == "crash-leader" or fault in ARMED or (leaders and world.rng.random() < 0.5):
        alive = leaders
    if fault == "stall-follower" and world.rng.random() < 0.7:
        alive = [node for node in alive if node not in leaders]
    return world.rng.choice(alive) if alive else None


def crash(world: World, node: Node, *, emptied: bool) -> None:
    """The process dies, its store loses a suffix of what was written, or everything; it comes back later."""
    process = node.process
    assert process is not None, "only the living die"
    process.kill()
    node.process = None
    if not world.spares(node):
        pass  # nobody might have what it would lose
    elif emptied:
        node.store.empty()
    else:
        unflushed = node.store.unflushed()
        node.store.crash(world.rng.choice((0, unflushed, world.rng.randint(0, unflushed))))
    # Another candidate that sees its port refuse deletes the dead one's znode at once (election/peer.py).
    world.after(world.rng.choice((5, 30, SESSION_MS)), lambda: world.ensemble.remove(process))
    world.after(world.rng.choice((20, 100, 500, 2_000)), lambda: world.start(node))


def _impair(world: World, process: Process, fault: str) -> None:
    """Something that passes: a pause, no way to ZooKeeper, a session lost, a task that stands still."""
    rng = world.rng
    lasts_ms = rng.choice((30, 150, 600, 1_500))
    if fault == "pause":
        process.paused = True
        if lasts_ms > SESSION_MS:
            world.after(SESSION_MS, lambda: world.ensemble.remove(process))
    elif fault == "cut-off":
        process.cut_off = True
        if lasts_ms > SESSION_MS:
            world.after(SESSION_MS, lambda: world.ensemble.remove(process))
    elif fault == "expire-session":
        world.ensemble.remove(process)
    elif fault == "stall-apply":
        process.apply_stalled = True
    elif fault == "stall-follower":
        process.follower_stalled = True
    world.after(lasts_ms, process.recover)
