"""The HTTP worker: a thread that answers, and that no client can hold up or fill.

Every connection has a while for each request, from its first byte to the last one of its answer; there are
no more than so many, and the oldest makes room for a new one, of those that wait for a request if there is
one. So neither half a request nor an answer that nobody reads keeps a file descriptor that the store may
need, and who only connects breaks off nobody's answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from functools import partial
from typing import Any, Final

import structlog
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from election.peer import listen_address
from node.http.errors import HttpPortTaken

log = structlog.get_logger("delayline.http")

REQUEST_TIMEOUT_S: Final = 120.0
MOST_CONNECTIONS: Final = 64
SPARED_S: Final = 1.0  # who has just connected is about to ask
BACKLOG: Final = 128
END_TIMEOUT_S: Final = 1


class HttpServer:
    """Binds in the constructor: HttpPortTaken. `port` 0: any that is free; `port` then says which."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        listener: socket.socket | None = None,
        path: str = "",
        most_connections: int | None = None,
    ) -> None:
        """`host`: as others are told; a name listens on all interfaces. With a `listener` it answers who
        connects to that; `host`, `port` and `path` then say where others are answered for it.
        """
        self.host = host
        self.path = path
        self._listener = listener or _listen(host, port)
        self.port: int = port or self._listener.getsockname()[1]
        self._most = most_connections
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self, app: Starlette) -> None:
        """Begins to answer."""
        config = uvicorn.Config(
            app,
            http=partial(_Bounded, {}, self._most),  # type: ignore[arg-type]  # it is only called
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # what clients do wrong is their business
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=END_TIMEOUT_S,
        )
        self._server = uvicorn.Server(config)
        self._thread.start()

    @property
    def runs(self) -> bool:
        """Whether its thread does: it was started, and has not ended, be it by an error."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Asks the thread to end."""
        if self._server is None:
            self._listener.close()
        else:
            self._server.should_exit = True

    def join(self) -> None:
        """Waits for the end of the thread."""
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        assert self._server is not None, "started with an application"
        try:
            self._server.run(sockets=[self._listener])
        except Exception as error:
            # A node delivers without it.
            log.error("http-stopped", detail=str(error))  # noqa: TRY400 - one line, no stack trace
        finally:
            self._listener.close()  # one that is stopped before it has begun leaves it open


class _Bounded(H11Protocol):
    """A connection with a deadline for each request."""

    def __init__(self, in_order: dict[_Bounded, None], most: int | None, **options: Any) -> None:
        """`in_order`: the server's connections, as they came; its event loop's own."""
        super().__init__(**options)
        self._open = in_order
        self._most = most or MOST_CONNECTIONS
        self._deadline: asyncio.TimerHandle | None = None
        self.made_s = 0.0  # of the event loop's time

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline()
        self.made_s = self.loop.time()
        self._open[self] = None
        if len(self._open) > self._most:
            odd = self._to_end()
            del self._open[odd]  # several may come before it is told that it has ended
            odd.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _to_end(self) -> _Bounded:
        """The oldest that waits for a request, but for those that have just come, while they are few; then
        the oldest of all.
        """
        waiting = [one for one in self._open if one is not self and one.waits_for_request]
        had_time = [one for one in waiting if self.loop.time() - one.made_s >= SPARED_S]
        if had_time or len(waiting) > self._most // 2:
            return (had_time or waiting)[0]
        return next(iter(self._open))

    @property
    def waits_for_request(self) -> bool:
        """Whether it answers none, half a request included, and all of its last answer is sent."""
        cycle: RequestResponseCycle | None = self.cycle
        is_answered = cycle is None or cycle.response_complete
        return is_answered and not self.transport.get_write_buffer_size()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_deadline()

    def _set_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self.transport.abort)


def _listen(host: str, port: int) -> socket.socket:
    address = listen_address(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=BACKLOG)
    except OSError as error:
        where = address or "all interfaces"
        raise HttpPortTaken(
            f"cannot listen on HTTP port {port} at {where}: {os.strerror(error.errno or 0)}; "
            "set another http_port or http_host, or end the process that has the port"
        ) from error
