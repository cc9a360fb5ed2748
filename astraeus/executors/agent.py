"""The executor of clusters whose machines run Astraeus' agent: it writes desired state, agents make it true."""

from astraeus.ledger import gangs
from astraeus.ledger.core import Ledger
from astraeus.model.messages import AttemptRef


class AgentExecutor:
    """An `Executor` over the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def start(self, ref: AttemptRef) -> None:
        """Ask for every worker, held at its gate."""
        async with self.ledger.transaction() as tx:
            await gangs.start(tx, ref)

    async def open(self, ref: AttemptRef, budget_left: int | None, next_earned_seconds: float | None) -> None:
        """Let all workers go."""
        async with self.ledger.transaction() as tx:
            await gangs.open_gates(tx, ref, budget_left, next_earned_seconds)

    async def stop(self, ref: AttemptRef, cause: str | None, who: str, why: str | None) -> None:
        """Record the intent, then have every worker stopped."""
        async with self.ledger.transaction() as tx:
            await gangs.stop(tx, ref, cause, who, why)
