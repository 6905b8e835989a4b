"""The simulation silences the core's logs, for speed: for its own tests alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.logging_state import restored_logging


@pytest.fixture(autouse=True)
def loud_again() -> Iterator[None]:
    with restored_logging():
        yield
