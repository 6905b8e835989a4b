"""A table in PostgreSQL, polled: what is due is locked, taken, and deleted. A job; a topic is a table,
the address as libpq writes it.

What is taken counts as come before its deletion is committed, as it has to where nothing may be lost: a
server that dies in between gives it again.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Any, Final

import psycopg

from bench.message import TRACE, key
from bench.peers.job import Arrivals, Reading, Ready, Sending, messages, serve_jobs

BATCH: Final = 1_000
AT_ONCE: Final = 10_000
POLL_S: Final = 0.005
RETRY_S: Final = 0.05


def _load(address: str, table: str, sending: Sending, ready: Ready) -> float:
    each = messages(sending)
    with psycopg.connect(address, autocommit=True) as connection:
        ready()
        begin_s = time.perf_counter()
        while batch := list(islice(each, 1 if sending.rate else AT_ONCE)):
            with connection.cursor().copy(
                f"COPY {table} (due_ms, key, trace, value) FROM STDIN (FORMAT binary)"
            ) as copy:
                copy.set_types(["int8", "bytea", "bytea", "bytea"])
                for number, due_ms, value in batch:
                    copy.write_row((due_ms, key(number), TRACE[1], value))
        return time.perf_counter() - begin_s


def _read(address: str, table: str, reading: Reading, ready: Ready) -> dict[str, Any]:
    take = (
        f"DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE due_ms <= %s"  # noqa: S608
        " ORDER BY due_ms LIMIT %s FOR UPDATE SKIP LOCKED)) RETURNING value"
    )
    arrivals = Arrivals(reading)
    connection: psycopg.Connection | None = psycopg.connect(address)
    ready()
    while arrivals.go_on:
        try:
            connection = connection or psycopg.connect(address)
            now_ms = time.time_ns() // 1_000_000
            # A plan that is kept was made while the table was empty: it would look through all of it.
            rows = connection.execute(take, (now_ms, BATCH), prepare=False, binary=True).fetchall()
            arrivals.take([value for (value,) in rows])
            connection.commit()
        except psycopg.Error:  # it is away, or reads what it had
            connection = None
            time.sleep(RETRY_S)
            continue
        if len(rows) < BATCH:
            time.sleep(POLL_S)
    return arrivals.read()


if __name__ == "__main__":
    serve_jobs(_load, _read)
