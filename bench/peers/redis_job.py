"""A sorted set in Redis, polled: what is due is taken out, by one script, so that nobody else gets it. A job.

A server that dies between the taking and the answer loses what was taken; to read first and to remove later
would give it twice instead.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, cast

import redis

from bench.job import serve
from bench.message import key
from bench.peers.job import Arrivals, Message, Reading, Sending, messages, understood

BATCH: Final = 1_000
POLL_S: Final = 0.005
RETRY_S: Final = 0.05
_TAKE: Final = """
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #due > 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #due - 1)
end
return due
"""


def run(told: dict[str, Any], ready: Any) -> Any:
    """What the job's process does. A topic is a key."""
    address, topic, what = understood(told)
    host, port = address.split(":")
    client = redis.Redis(host=host, port=int(port))
    client.ping()
    return (
        _load(client, topic, what, ready) if isinstance(what, Sending) else _read(client, topic, what, ready)
    )


def _load(client: redis.Redis, topic: str, sending: Sending, ready: Any) -> float:
    each = messages(sending)
    ready()
    begin_s = time.perf_counter()
    while batch := list(islice(each, 1 if sending.rate else BATCH)):
        client.zadd(topic, _members(batch))
    return time.perf_counter() - begin_s


def _members(batch: Sequence[Message]) -> dict[bytes, float]:
    """The value, its key behind it, by when it is due."""
    return {one.value + key(one.number): one.due_ms for one in batch}


def _read(client: redis.Redis, topic: str, reading: Reading, ready: Any) -> dict[str, Any]:
    take = client.register_script(_TAKE)
    arrivals = Arrivals(reading)
    ready()
    while arrivals.go_on:
        try:
            due = cast("list[bytes]", take(keys=[topic], args=[time.time_ns() // 1_000_000, BATCH]))
        except redis.RedisError:  # it is away, or reads what it had
            time.sleep(RETRY_S)
            continue
        arrivals.take(due)
        if len(due) < BATCH:
            time.sleep(POLL_S)
    return arrivals.read()


if __name__ == "__main__":
    serve(run)
