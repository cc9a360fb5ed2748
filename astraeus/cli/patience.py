"""Reading on while the server is away: its restart must end no wait of a person or a script."""

import time
from collections.abc import Callable
from typing import TypeVar

from astraeus.cli import output

AWAY_SECONDS = 600.0
PAUSE_SECONDS = 1.0
LIVE_SECONDS = 300.0
"""A read that lasted longer than this was not one that failed: what ends it is a new absence."""

Result = TypeVar("Result")


def patiently(read: Callable[[], Result]) -> Result:
    """What `read` returns, tried again while the server is away, for up to ten minutes."""
    from astraeus.client.errors import ApiError

    end: float | None = None
    while True:
        began = time.monotonic()
        try:
            return read()
        except ApiError as error:
            now = time.monotonic()
            if now - began > LIVE_SECONDS:
                end = None
            if not error.away or (end is not None and now > end):
                raise
            if end is None:
                end = now + AWAY_SECONDS
                output.note(f"astra: {error.detail}; waiting for it")
            time.sleep(PAUSE_SECONDS)
