"""The network as a map, and the largest gang that fits now on each rung."""

import asyncio
from collections.abc import Sequence

from api.auth import Scope
from api.console import room
from api.console.chart import chart
from api.console.view import Params, Values, View
from api.services import fleet
from api.services.runs import known_cluster
from astraeus.ledger.findings import FindingView
from astraeus.placement.faultcost import UPLINK
from astraeus.placement.types import Snapshot

TOLD = {"id", "severity", "place", "message", "cost", "costs", "runs", "advice"}
"""What the page shows of a finding."""


async def load(scope: Scope, params: Params) -> Values:
    """The map of one cluster with who holds what."""
    wanted = str(params["only"]) if params.get("only") else None
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, wanted)
        snapshot = await scope.state.outlooks.of(cluster).snapshot(tx)
    findings = (await fleet.findings(scope, cluster)).items
    # Beside the requests of agents: a thousand machines are not drawn in a moment.
    shown = await asyncio.to_thread(_shown, snapshot)
    return shown | {
        "cluster": cluster,
        "clusters": [one.name for one in (await fleet.clusters(scope)).items],
        "findings": [one.model_dump(mode="json", include=TOLD) for one in findings],
        "faults": _faults(findings),
    }


def _faults(findings: Sequence[FindingView]) -> dict[str, str]:
    """What is wrong at which machine; faults above the leaves are at none."""
    found: dict[str, str] = {}
    for one in findings:
        if one.severity != "info" and one.kind not in UPLINK:
            found.update({name: f"{one.place} {one.message}" for name in one.machines if name not in found})
    return found


def _shown(snapshot: Snapshot) -> Values:
    tree = chart(snapshot)
    return {
        "tree": tree,
        "totals": {
            "machines": len(snapshot.machines),
            "gpus": sum(fabric["gpus"] for fabric in tree),
            "free": sum(fabric["free"] for fabric in tree),
        },
        "rooms": [vars(one) | {"total": one.total} for one in room.largest(snapshot)],
        "kept": room.kept(snapshot),
    }


VIEW = View("topology", "Topology", load, lambda _, __: ("machine", "cluster"), {})
