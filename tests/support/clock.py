"""A ledger whose clock a test sets forward."""

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from astraeus.ledger.core import Ledger


class Clocked(Ledger):
    """A ledger that is `ahead` of its database's clock, by so many seconds."""

    def __init__(self, url: str | URL) -> None:
        super().__init__(url)
        self.ahead = 0.0

    async def _first(self, engine: AsyncEngine, begin: str) -> tuple[AsyncConnection, float]:
        conn, now = await super()._first(engine, begin)
        return conn, now + self.ahead
