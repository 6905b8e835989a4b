"""A bulk job by its name: what it has sent is told by reading the buffer since it began.

So a job that is started again, whatever ended it, sends what is not in the buffer yet, and nothing twice:
also where its messages have been delivered meanwhile and their ids are forgotten. Where it began is noted in
ZooKeeper before it sends anything. What is sent between that note and a crash is found by reading, once
those who sent it have ended (ops/bulk/run.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Final

from delayline.names import ClusterNames
from election.operators import BulkJob, HistoryEntry
from node.config import ConnectionConfig
from ops.bulk.run import Run
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import registry
from ops.errors import ConfigError, ConflictError
from pipeline.kafka.extent import TopicExtent

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def require_name(job: str) -> None:
    """Raises ConfigError: it could be no part of an id, or no znode."""
    if _NAME.fullmatch(job) is None:
        raise ConfigError(
            f"job {job!r}: use 1 to 100 of A-Z a-z 0-9 . _ - and begin with a letter or a digit"
        )


def digest_of(op: str, columns: Mapping[str, str]) -> str:
    """Of a job's words: what it makes of a row."""
    return hashlib.sha256(json.dumps([op, sorted(columns.items())]).encode()).hexdigest()


def begin(config: ConnectionConfig, run: Run, words: str) -> TopicExtent:
    """What of the buffer may be the job's, once nobody else sends for it: nothing, if it begins now. `words`:
    their digest.

    Raises ConflictError where nobody can tell any more what it has sent, and where its words are others: what
    it has sent by those before would count as sent.
    """
    job, admin, buffer = run.job, KafkaAdmin(config), ClusterNames(config.cluster).buffer
    mine = BulkJob(admin.topic_id(buffer), admin.ends(buffer), words, run.author)
    entry = HistoryEntry(what="bulk job begun", author=run.author, after=job)
    with registry(config) as znodes:
        noted = znodes.begin_bulk(job, mine, entry)
    if noted.words != words:
        raise ConflictError(
            f"job {job} began with other columns or another command: give what is to be sent now another name"
        )
    if noted.buffer != mine.buffer:
        raise ConflictError(
            f"job {job} began in a buffer topic that is gone: give what is to be sent now another name"
        )
    ends = mine.begins
    if noted is not mine:  # it began before: who sent for it then may be at it yet
        run.settle()
        ends = admin.ends(buffer)
    _require_kept(admin.begins(buffer), noted, job, buffer)
    return TopicExtent(
        {(buffer, partition): noted.begins.get(partition, 0) for partition in ends},
        {(buffer, partition): end for partition, end in ends.items()},
    )


def _require_kept(begins: dict[int, int], noted: BulkJob, job: str, buffer: str) -> None:
    for partition, begin_ in begins.items():
        if begin_ > noted.begins.get(partition, 0):
            raise ConflictError(
                f"job {job} began at {buffer}/{partition}/{noted.begins.get(partition, 0)}, and retention has"
                f" taken what is below {begin_}: what it has sent cannot be told any more; give what is to be"
                " sent now another name"
            )
