"""What users are shown between attempts."""

from temporalio import activity

from activities.delivery import Courier
from astraeus.ledger import runs
from astraeus.ledger.core import Ledger
from workflows.contracts import RunNote


class Records:
    """Activities that write a run's state and reason."""

    def __init__(self, ledger: Ledger, courier: Courier) -> None:
        self.ledger = ledger
        self.courier = courier

    @activity.defn
    async def note_run(self, note: RunNote) -> None:
        """Show a state and reason; a final state never changes."""
        async with self.ledger.transaction() as tx:
            await runs.set_state(tx, note.run_uid, note.state, note.reason, held=note.held, actor=note.actor)
        await self.courier.after(tx)
