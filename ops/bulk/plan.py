"""What is to be loaded, as it was asked for on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from delayline.names import ClusterNames
from election.operators import Author
from node.config import ConnectionConfig
from ops.bulk import job
from ops.bulk.files import KINDS, read, require_free, require_no_export, require_place, with_op
from ops.bulk.load import Load
from ops.bulk.run import Run
from ops.clients.kafka import KafkaAdmin
from ops.errors import ConfigError, NotAuthorisedError
from ops.spark import bulk_session, spark_errors, stopped_after
from ops.topics import cluster_topics
from pipeline.bulk.templates import sql_of
from pipeline.kafka.security import spark_options

_RIGHTS: Final = ("READ", "WRITE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A bulk load.

    Args:
        op: schedule, cancel or reschedule.
        source: where the rows are, `kind:path` or `table:name`.
        job: its name.
        columns: what of a row is which column of a request, `name=SQL`.
        templates: the same, `name=text with ${SQL}`.
        rejected: where the rows go that would be rejected; None: nowhere.
        master: where Spark runs.
    """

    op: str
    source: str
    job: str
    columns: Iterable[str] = ()
    templates: Iterable[str] = ()
    rejected: str | None = None
    master: str = "local[*]"

    def __post_init__(self) -> None:
        """Raises ConfigError, before anything is begun."""
        job.require_name(self.job)
        require_place("--from", self.source)
        if self.rejected is not None:
            require_place("--rejected", self.rejected, KINDS - {"table"})
        self.mapping()

    def mapping(self) -> dict[str, str]:
        """An expression of SQL for each column of a request that was given one."""
        found: dict[str, str] = {}
        for text in self.columns:
            _add(found, "--column", text, str)
        for text in self.templates:
            _add(found, "--template", text, sql_of)
        return found

    @contextmanager
    def begun(
        self, config: ConnectionConfig, say: Callable[[str], None], author: Author | None
    ) -> Iterator[tuple[Load, Run | None]]:
        """Spark, with the rows in it, and the job's run, for as long as the block lasts. `author`: who wants
        them sent; None: nobody, and there is no run.

        Raises ConflictError if another run has the job, NotAuthorisedError if this user may not send.
        """
        spark_options(config.kafka)  # what Spark could not read again with is not to be sent with either
        settings = cluster_topics.read_settings(config)
        KafkaAdmin(config).require(ClusterNames(config.cluster).buffer)  # Spark would wait for minutes
        with ExitStack() as ends:
            run = None
            if author is not None:
                _require_rights(config)
                run = ends.enter_context(Run(config, self.job, author))
            say("starting Spark")
            spark = ends.enter_context(stopped_after(bulk_session(self.master)))
            with spark_errors(config.bootstrap_servers):
                if self.rejected is not None:
                    require_free(spark, self.rejected)
                rows = read(spark, self.source)
                if self.op == "schedule":
                    require_no_export(rows, self.source)
                frame = with_op(rows, self.op)
                yield Load(config, settings, self.job, frame, self.mapping(), op=self.op, say=say), run


def _require_rights(config: ConnectionConfig) -> None:
    buffer = ClusterNames(config.cluster).buffer
    there = KafkaAdmin(config).described([buffer])[buffer].rights
    missing = [right.capitalize() for right in _RIGHTS if right not in there]
    if missing:
        raise NotAuthorisedError(
            f"this user may not {' or '.join(missing)} {buffer}, so nothing was begun: give it"
            f" {' and '.join(missing)} on {buffer}"
        )


def _add(found: dict[str, str], option: str, text: str, meant: Callable[[str], str]) -> None:
    name, _, of = text.partition("=")
    if name == "op":
        raise ConfigError(f"{option} {text!r}: what all rows ask for is the command's own name")
    if not name or not of:
        raise ConfigError(f"{option} {text!r}: write NAME=...")
    if name in found:
        raise ConfigError(f"{option} {text!r}: {name} was given before")
    found[name] = meant(of)
