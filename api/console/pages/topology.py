"""The network as a map, and the largest gang that fits now on each rung."""

import asyncio

from api.auth import Scope
from api.console import room
from api.console.view import Params, Values, View
from api.services import fleet
from api.services.runs import known_cluster
from api.topology import ClusterTree, MachineNode
from astraeus.ledger.snapshot import load_snapshot


async def load(scope: Scope, params: Params) -> Values:
    """The tree of one cluster with who holds what."""
    wanted = str(params["only"]) if params.get("only") else None
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, wanted)
        snapshot = await load_snapshot(tx, cluster)
    (tree,) = (await fleet.topology(scope, cluster)).clusters
    rooms = await asyncio.to_thread(room.largest, snapshot)
    return {
        "cluster": cluster,
        "clusters": [one.name for one in (await fleet.clusters(scope)).items],
        "tree": _tree(tree),
        "totals": {"machines": tree.machines, "gpus": tree.gpus, "free": tree.free_gpus},
        "rooms": [vars(one) | {"total": one.total} for one in rooms],
        "kept": room.kept(snapshot),
        "findings": [one.model_dump() for one in (await fleet.findings(scope, cluster)).items],
    }


def _tree(tree: ClusterTree) -> list[Values]:
    """Only what the map draws: a thousand machines are sent at each change."""
    return [
        {
            "name": fabric.name,
            "free": fabric.free_gpus,
            "gpus": fabric.gpus,
            "spines": [
                {
                    "name": spine.name,
                    "leaves": [
                        {
                            "name": leaf.name,
                            "free": leaf.free_gpus,
                            "gpus": leaf.gpus,
                            "machines": [_machine(machine) for machine in leaf.machines],
                        }
                        for leaf in spine.leaves
                    ],
                }
                for spine in fabric.spines
            ],
        }
        for fabric in tree.fabrics
    ]


def _machine(machine: MachineNode) -> list[object]:
    return [
        machine.name,
        state_of(machine.state, machine.cordoned, machine.runs),
        machine.gpus,
        machine.free_gpus,
        machine.runs,
        machine.nvlink_domain or "",
        machine.rack or "",
        machine.gpu_model,
    ]


def state_of(state: str, cordoned: bool, runs: list[str]) -> str:
    """How the map colours a machine."""
    if state != "Ready":
        return "down" if state == "Down" else "returning"
    if cordoned:
        return "draining" if runs else "drained"
    return "busy" if runs else "free"


VIEW = View("topology", "Topology", load, lambda _, __: ("machine", "cluster"), {})
