"""The whole input of a scheduling pass, for repeating it elsewhere."""

import asyncio

from api.auth import Scope
from api.services.runs import known_cluster
from astraeus.placement.jsonform import write_input


async def whole_input(scope: Scope, cluster: str | None) -> bytes:
    """What the next pass over a cluster would decide on, as JSON."""
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        snapshot = await scope.state.outlooks.of(cluster).snapshot(tx)
    return await asyncio.to_thread(write_input, snapshot, tx.now)
