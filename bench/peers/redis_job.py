"""A sorted set in Redis, polled: what is due is taken out, by one script, so that nobody else gets it.

A job; a topic is a key.

A server that dies between the taking and the answer loses what was taken; to read first and to remove later
would give it twice instead.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bench.message import TRACE, key
from bench.peers.job import Arrivals, Message, Reading, Ready, Sending, messages, serve_jobs

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


def _client(address: str) -> redis.Redis:
    """Says at once that it is away: `RETRY_S` says when to ask again."""
    host, port = address.split(":")
    return redis.Redis(host=host, port=int(port), retry=Retry(NoBackoff(), 0))


def _load(address: str, topic: str, sending: Sending, ready: Ready) -> float:
    client, each = _client(address), messages(sending)
    client.ping()
    ready()
    begin_s = time.perf_counter()
    while batch := list(islice(each, 1 if sending.rate else BATCH)):
        client.zadd(topic, _members(batch))
    return time.perf_counter() - begin_s


def _members(batch: Sequence[Message]) -> dict[bytes, float]:
    """The value, its key and its header behind it, by when it is due."""
    return {one.value + key(one.number) + TRACE[1]: one.due_ms for one in batch}


def _read(address: str, topic: str, reading: Reading, ready: Ready) -> dict[str, Any]:
    take = _client(address).register_script(_TAKE)
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
    serve_jobs(_load, _read)
