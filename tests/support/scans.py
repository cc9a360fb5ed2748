"""Scans taken over by a ledger, as the API does it."""

from collections.abc import Sequence
from typing import Any

from support.scene import CLUSTER, Scene

from astraeus.ledger import topology
from astraeus.ledger.tables import nic
from astraeus.topology.derive import derive
from astraeus.topology.owners import described
from astraeus.topology.rates import gbps
from astraeus.topology.scan import Scan, guid_text
from astraeus.topology.sites import Site

NOTHING = Site()


async def take(scene: Scene, found: Scan, *, force: bool = False, site: Site = NOTHING) -> topology.Outcome:
    """Derive and apply a scan."""
    async with scene.ledger.reading() as tx:
        before = await topology.read_state(tx, CLUSTER)
    told = derive(found, before.inventory, before.known, before.at)
    async with scene.ledger.transaction() as tx:
        return await topology.apply(tx, CLUSTER, before, told, site, "ada", b"outputs", force)


async def rows(scene: Scene, query: Any) -> Sequence[Any]:
    async with scene.ledger.reading() as tx:
        return (await tx.conn.execute(query)).all()


async def report(scene: Scene, *scans: Scan) -> None:
    """Agents report the ports that these scans see."""
    ports = []
    for found in scans:
        for guid, node in found.nodes.items():
            owner = described(node.description)
            if owner is not None and (guid, 1) in found.rates:
                name, device = owner
                ports.append(
                    {"cluster": CLUSTER, "machine": name, "device": device, "port": 1, "rail": int(device[5:])}
                    | {"link": "infiniband", "up": True, "gbps": gbps(found.rates[guid, 1])}
                    | {"node_guid": guid_text(guid)}
                )
    async with scene.ledger.transaction() as tx:
        await tx.conn.execute(nic.delete())
        await tx.conn.execute(nic.insert(), ports)


def without(found: Scan, machines: int) -> Scan:
    """A scan without the first machines' links."""
    gone = tuple(f"node{i:03} " for i in range(1, machines + 1))
    for guid, node in found.nodes.items():
        if node.description.startswith(gone):
            found.peers.pop(found.peers.pop((guid, 1)))
    return found
