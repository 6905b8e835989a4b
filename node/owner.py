"""What the parts of a node tell it, and what it does for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from node.refusal import Refusal


class Health(NamedTuple):
    """`refuse`: there is a reason to refuse leadership; `fail`: an error has ended a part; `inspect`: look
    whether the topics and settings are still those of the store.
    """

    refuse: Callable[[Refusal], None]
    fail: Callable[[Exception], None]
    inspect: Callable[[], None]
