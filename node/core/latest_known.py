"""Which of the checkpoints that are known a new leader goes on from (docs/design.md, rule 6).

The node's own one and the znode's are of commits that are known. Where one of them is later than the topic's
last one, and of the same topic, the topic has lost its end, and the later one is right: what it covers was
delivered.

Not if the topic was made anew since, or if somebody has gone on without knowing of it: who went on from that
one would deliver again what was delivered since. Both show in the lineage: a topic that is made anew has
another id, and a leadership that began after the end was lost has a higher leader epoch than what was lost.
Where the topic is empty, and those known are of several that were before it, a lineage names the topics which
its leader had known of: those are earlier. Clocks do not tell, for each of two leaders has its own. Of what
is left nobody had known of the other, and the time of what was committed last decides. So it does where each
names the other, which is only where brokers have an id again that was gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from store.checkpoint import Checkpoint, Lineage


def latest_known(
    last: Checkpoint | None, others: Iterable[Checkpoint], lineage: Lineage
) -> Checkpoint | None:
    """The one to go on from; None if nothing was ever delivered.

    `last`: the topic's. `others`: those known elsewhere. `lineage`: read after `last`.
    """
    known = list(others)
    topic_id = lineage.topic_id if last is None else last.lineage.topic_id
    of_topic = [one for one in known if one.lineage.topic_id == topic_id]
    if last is not None:
        of_topic.insert(0, last)
    if known and not of_topic:
        earlier = {topic for one in known for topic in one.lineage.before}
        left = [one for one in known if one.lineage.topic_id not in earlier] or known
        newest = max(left, key=lambda one: one.at_ms)
        of_topic = [one for one in left if one.lineage.topic_id == newest.lineage.topic_id]
    return max(of_topic, key=_order, default=None)


def _order(one: Checkpoint) -> tuple[int, tuple[int, int]]:
    """Of one topic's, the one to go on from compares greatest: who went on later knew of more."""
    return one.lineage.leader_epoch, one.order
