"""A cluster and workspaces to test with."""

from astraeus.ledger import tenancy
from astraeus.ledger.core import Ledger
from astraeus.ledger.tenancy import Workspace

CLUSTER = "lab-a"


async def workspace(ledger: Ledger, name: str = "vision", organisation: str = "acme") -> Workspace:
    async with ledger.transaction() as tx:
        await tenancy.ensure_cluster(tx, CLUSTER)
        return await tenancy.ensure_workspace(tx, organisation, name, CLUSTER)
