"""An API without Temporal."""

from astraeus.ledger.core import Tx
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tenancy import Workspace


class Nowhere:
    """No Temporal."""

    async def after(self, tx: Tx) -> None: ...

    async def start(self, row: RunRow, workspace: Workspace) -> None: ...
