"""What an API process holds: the ledger, the change feed, the way to Temporal, and its own small caches."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from api.handout import HandedOut
from api.metrics import Metrics
from api.outlook import Outlooks
from api.relay import Relays
from api.tokens import TokenCache
from astraeus.ledger.changes import ChangeHub
from astraeus.ledger.cipher import Cipher
from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tenancy import Workspace

log = logging.getLogger(__name__)

DELIVERY_SECONDS = 1.0
"""How long an answer is held for Temporal; what it misses, the courier and the sweep make good."""

CLOSING_SECONDS = 1.0


class Delivery(Protocol):
    """The way to Temporal. Both calls may be repeated; while Temporal is away they raise or take long."""

    async def after(self, tx: Tx) -> None:
        """Do what a committed transaction calls for: send its outbox rows, wake the schedulers it concerns."""

    async def start(self, row: RunRow, workspace: Workspace) -> None:
        """Start the run's workflow unless it was started before."""


class Background:
    """Work that outlives the request it came from; failures are logged, since a sweep repeats the work."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Run `work` now; `what` names it in the log."""
        task = asyncio.create_task(_logged(work, what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def at_most(self, seconds: float, work: Coroutine[Any, Any, None], what: str) -> None:
        """Wait for `work` up to `seconds`; after that it goes on in the background."""
        task = self.start(work, what)
        try:
            await asyncio.wait_for(asyncio.shield(task), seconds)
        except TimeoutError:
            log.info("%s goes on in the background", what)

    async def close(self) -> None:
        """Let what runs come to its end, for a moment; a connection that is cut off while it opens would leak."""
        work = asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await asyncio.wait_for(work, CLOSING_SECONDS)
        except TimeoutError:
            log.info("left to the courier and the sweep: work that Temporal did not take in time")


async def _logged(work: Coroutine[Any, Any, None], what: str) -> None:
    try:
        await work
    except Exception as error:
        log.warning("%s failed: %s", what, error)


@dataclass
class AppState:
    """One API process. The change hub is started and closed by whoever made it.

    `public_url` is where users reach the API; `replica_url` is where agents reach this very process, for logs.
    `temporal_up` tells readiness, which only reports it, whether Temporal answers.
    """

    ledger: Ledger
    hub: ChangeHub
    delivery: Delivery
    cipher: Cipher
    public_url: str
    temporal_ui: str | None = None
    replica_url: str | None = None
    temporal_namespace: str = "default"
    temporal_up: Callable[[], Awaitable[bool]] | None = None
    background: Background = field(default_factory=Background, init=False)
    relays: Relays = field(default_factory=Relays, init=False)
    handed_out: HandedOut = field(default_factory=HandedOut, init=False)
    tokens: TokenCache = field(default_factory=TokenCache, init=False)
    metrics: Metrics = field(default_factory=Metrics, init=False)
    outlooks: Outlooks = field(default_factory=Outlooks, init=False)

    async def deliver(self, tx: Tx) -> None:
        """Send what `tx` committed, waiting briefly so that an order is usually on its way when it is answered."""
        if tx.outbox or tx.changes:
            await self.background.at_most(DELIVERY_SECONDS, self.delivery.after(tx), "delivering messages")

    def deliver_later(self, tx: Tx) -> None:
        """Send what `tx` committed without holding anyone up."""
        if tx.outbox or tx.changes:
            self.background.start(self.delivery.after(tx), "delivering messages")

    async def start_workflows(self, rows: Sequence[RunRow], workspace: Workspace) -> None:
        """Start the workflows of a committed run, or of its workers, waiting briefly."""
        if rows:
            what = f"starting the workflow of {rows[0].name}"
            await self.background.at_most(DELIVERY_SECONDS, self._start(rows, workspace), what)

    async def _start(self, rows: Sequence[RunRow], workspace: Workspace) -> None:
        for row in rows:
            await self.delivery.start(row, workspace)
