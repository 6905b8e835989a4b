"""Nodes that begin with a snapshot of a peer's store (docs/design.md, "A node from a peer").

What is linked at one moment arrives at a later one: both are any, and the giver is any process that lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.process import Node
from tests.simulation.stores import CrashableStore, dump

if TYPE_CHECKING:
    from tests.simulation.world import World

TAKES_MS: Final = (0, 10, 80, 400)
"""A process that starts before that begins with the log."""

Entries = list[tuple[bytes, bytes]]


def begin_from_peer(world: World, node: Node) -> None:
    """For a node whose store is empty, and that has not started again yet."""
    givers = [one for one in world.nodes if one is not node and one.process is not None]
    if givers:
        giver = world.rng.choice(givers)
        world.after(world.rng.randint(1, 9), lambda: _give(world, giver, node))


def _give(world: World, giver: Node, node: Node) -> None:
    if giver.process is None or node.process is not None:
        return
    entries = linked(giver.store)
    world.note("snapshot", node.name, giver.name)
    world.after(world.rng.choice(TAKES_MS), lambda: _place(giver, node, entries))


def _place(giver: Node, node: Node, entries: Entries) -> None:
    if node.process is None and not any(node.store.scan(b"\x00", b"\xff")):
        place(node.store, entries, giver.store)


def linked(store: CrashableStore) -> Entries:
    """A giver's store as it is between two writes: memtables are flushed for that."""
    store.flush()
    return dump(store)


def place(store: CrashableStore, entries: Entries, giver: CrashableStore) -> None:
    """Makes them the store of a node that has none. `giver`: as it has become meanwhile."""
    batch = store.batch()
    for key, value in entries:
        batch.put(key, value)
    store.write(batch)
    store.flush()
