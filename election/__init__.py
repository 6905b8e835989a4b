"""Who is leader of a lane: ZooKeeper elects, Kafka fences (docs/design.md, "Election").

`candidacy` queues up in ZooKeeper, `peer` notices that a process is gone or stands still, `registry` keeps
what the cluster shares (settings, members, the checkpoints' mirrors), `session` is the one road to
ZooKeeper.

At times two nodes both believe that they lead: a paused leader does not know that another one is elected, and
a leader that cannot reach ZooKeeper goes on. That is harmless. All that a leader does is a Kafka transaction
under the lane's two transactional ids, and `init_transactions()` of a newer leader fences the producers of
the older one: what the older one commits afterwards fails. So the election decides who *starts*, never what
counts.
"""
