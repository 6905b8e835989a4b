"""The life of a watch: its rounds until it is told to end, and what it shows meanwhile."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from node.http.server import HttpServer
from ops.errors import ConfigError, NotAuthorisedError, OperatorError, UnavailableError, translated
from ops.setup.cache import SetupError
from ops.spark import spark_errors
from ops.watch.figures import WatchFigures
from ops.watch.page import watch_page
from ops.watch.rounds import Ended, Rounds
from pipeline.errors import KafkaFailed, KafkaSilent, PipelineError
from pipeline.page.render import render

MOST_MISSED: Final = 3
"""So many rounds may fail, or take so many times as long, and the watch is still ready."""


class Life:
    """Of one watch. Raises `HttpPortTaken` if its address is taken, and `ConfigError` if that is none."""

    def __init__(self, cluster: str, bootstrap_servers: str, address: str | None, every_s: float) -> None:
        """`address`: `host:port` of its page; None: it has none. `every_s`: from one round's beginning to the
        next one's.
        """
        self.figures = WatchFigures(cluster)
        self._cluster = cluster
        self._bootstrap_servers = bootstrap_servers
        self._every_s = every_s
        self._server = None if address is None else HttpServer(*_parsed(address))

    def __enter__(self) -> Self:
        signal.signal(signal.SIGTERM, _interrupt)
        if self._server is not None:
            self._server.start(self._app())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()
            self._server.join()

    def lead(
        self,
        rounds: Rounds,
        *,
        once: bool,
        tell: Callable[[Ended, float], None],
        tell_failed: Callable[[str], None],
    ) -> int:
        """Round after round, or `once`; returns 1 if a violation stands at the end, else 0.

        A round that fails is told, and tried again: it has told nothing, and the next one does its part, too.
        Raises what another try does not mend, and `UnavailableError` if its Spark has ended.
        """
        self.figures.known(rounds.marker)
        try:
            while True:
                begun_s = time.monotonic()
                self._round(rounds, once=once, tell=tell, tell_failed=tell_failed)
                if once:
                    break
                time.sleep(max(0.0, begun_s + self._every_s - time.monotonic()))
        except KeyboardInterrupt:
            if once:
                raise  # nothing is proven
        return 1 if rounds.marker is not None and rounds.marker.open_violations else 0

    def _round(
        self,
        rounds: Rounds,
        *,
        once: bool,
        tell: Callable[[Ended, float], None],
        tell_failed: Callable[[str], None],
    ) -> None:
        begun_s = time.monotonic()
        try:
            with spark_errors(self._bootstrap_servers):
                ended = rounds.next()
        except (OperatorError, PipelineError) as error:
            why = str(translated(error) or error)
            if not rounds.may_go_on:
                raise UnavailableError(
                    f"Spark has ended ({why}): start the watch again, it goes on"
                ) from error
            if once or not may_pass(error):
                raise
            self.figures.failed(why)
            tell_failed(why)
        else:
            took_s = time.monotonic() - begun_s
            self.figures.ended(ended, took_s)
            tell(ended, took_s)

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._page),
                Route("/metrics", self._metrics),
                Route("/livez", self._live),
                Route("/readyz", self._ready),
            ]
        )

    async def _page(self, request: Request) -> Response:
        marker, failed, took_s = self.figures.last()
        return HTMLResponse(render(watch_page(self._cluster, marker, failed, took_s)))

    async def _metrics(self, request: Request) -> Response:
        return Response(self.figures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"cluster": self._cluster})

    async def _ready(self, request: Request) -> Response:
        """503 while nothing is proven, or what is proven is old."""
        marker, failed, took_s = self.figures.last()
        told: dict[str, Any] = {"cluster": self._cluster, "reason": failed}
        if marker is None:
            return JSONResponse({**told, "reason": failed or "the first round is under way"}, 503)
        age_s = time.time() - marker.taken_ms / 1000
        told |= {"round": marker.number, "proven_up_to_ms": marker.proven_up_to_ms, "age_s": round(age_s, 1)}
        is_old = age_s > MOST_MISSED * max(self._every_s, took_s)
        return JSONResponse(told, 503 if is_old else 200)


def may_pass(error: OperatorError | PipelineError) -> bool:
    """Whether another try may end well."""
    if isinstance(error, PipelineError):
        return isinstance(error, (KafkaFailed, KafkaSilent))
    return not isinstance(error, (ConfigError, NotAuthorisedError))


@contextmanager
def told_from_found() -> Iterator[None]:
    """What ends a watch in this block has a code of its own: 1 means that a violation stands."""
    try:
        yield
    except (SetupError, OperatorError, PipelineError) as error:
        known = UnavailableError(str(error)) if isinstance(error, SetupError) else translated(error) or error
        if isinstance(known, OperatorError) and known.exit_code == OperatorError.exit_code:
            known = UnavailableError(str(known))
        raise known from None


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"--http {address}: write HOST:PORT, as in 127.0.0.1:17600")
    return host.strip("[]"), int(port)
