"""Where downloads are kept: outside the checkout, shared by every checkout of the user.

Standard library only: the bootstrap imports it before any package is installed.
"""

from __future__ import annotations

import os
from pathlib import Path


class SetupError(Exception):
    """The machine lacks something; the message is one line that says what, and what to do."""


def cache_folder() -> Path:
    """The cache's folder (made if missing): ``DELAYLINE_CACHE``, else ``delayline`` in the user's cache."""
    chosen = os.environ.get("DELAYLINE_CACHE")
    if chosen:
        folder = Path(chosen)
    else:
        home = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(home) if home else Path.home() / ".cache") / "delayline"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the cache folder {folder} cannot be made ({error.strerror}): set DELAYLINE_CACHE to another"
        ) from error
    return folder
