"""What is asked for a few at once, and comes in its order: a path with a delay is not idle meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Answer = TypeVar("Answer")


def answers(
    asks: Iterable[Callable[[], Answer]], at_once: int, is_over: threading.Event
) -> Generator[Answer]:
    """What each of them answers. So many are asked at once, on threads if it is more than one, and no more
    are held. Raises what they raise. To be closed. Those under way at its end are waited for: `is_over` tells
    them.
    """
    if at_once == 1:
        yield from (ask() for ask in asks)
        return
    with ThreadPoolExecutor(at_once, "taker") as threads:
        under_way = deque[Future[Answer]]()
        try:
            for ask in asks:
                under_way.append(threads.submit(ask))
                if len(under_way) == at_once:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            is_over.set()
            for one in under_way:
                one.cancel()
