"""Scans in the ledger: one change each, places over agents' words, findings, networks of runs, measurements."""

import pytest
from sqlalchemy import select, update
from support.fabrics import A, B, derived, everything, inventory, scan, truth, with_counters
from support.fleet import FakeAgent, GangScene
from support.scans import NOTHING, rows, take, without
from support.scene import CLUSTER

from astraeus.ledger import measured, networks, topology
from astraeus.ledger.core import Ledger
from astraeus.ledger.findings import FindingView, finding_views
from astraeus.ledger.machines import get
from astraeus.ledger.measured import measurement
from astraeus.ledger.tables import allocation, change, claim, event, machine, nic, run, topology_place, topology_scan
from astraeus.model.errors import Conflict, Invalid, NotFound
from astraeus.model.machine import FABRIC, LEAF, RACK, SPINE, MachineFacts, Nic
from astraeus.topology.derive import Derived, derive
from astraeus.topology.scan import Scan
from astraeus.topology.sites import Site

PLACE = {
    "network": "leaf:leaf-0",
    "words": "one leaf group",
    "estimate": {"busbw_gbps": 368.4, "words": "one leaf switch", "basis": "8 × 400 Gb/s rails, × 0.92"},
}


@pytest.fixture
async def scene(ledger: Ledger) -> GangScene:
    """The machines of the fixtures, as their agents report them."""
    found = await GangScene.start(ledger, 0)
    await found.add_machines(truth(A)["machines"])
    guids = {where: guid for guid, where in truth(A)["nic_guids"].items()}
    async with ledger.transaction() as tx:
        await tx.conn.execute(nic.delete())
        await tx.conn.execute(
            nic.insert(),
            [
                {"cluster": CLUSTER, "machine": name, "device": f"mlx5_{i}", "port": 1, "rail": i, "gbps": 400.0}
                | {"link": "infiniband", "up": True, "node_guid": guids[f"{name}/mlx5_{i}"]}
                for name in truth(A)["machines"]
                for i in range(8)
            ],
        )
    return found


async def test_the_inventory_is_what_agents_reported(scene: GangScene) -> None:
    async with scene.ledger.reading() as tx:
        state = await topology.read_state(tx, CLUSTER)
    assert state.inventory == inventory(A)
    assert (state.known, state.links) == ((), {})


async def test_a_scan_is_what_the_planner_sees(scene: GangScene) -> None:
    outcome = await take(scene, with_counters(B))
    assert (outcome.state, outcome.machines_changed, outcome.news.opened) == ("applied", 16, 9)
    machines = {one.name: one for one in (await scene.snapshot()).machines}
    assert (machines["node001"].leaf, machines["node001"].spine) == ("leaf-r0-7-g0", "spine-g0")
    assert machines["node009"].fabric == truth(B)["fabric"]
    ports = {port.device: port for port in machines["node003"].ports}
    assert (ports["mlx5_4"].gbps, ports["mlx5_3"].gbps) == (200.0, 400.0)
    assert [port.up for port in machines["node004"].ports] == [True] * 7 + [False]
    async with scene.ledger.reading() as tx:
        view = await get(tx, CLUSTER, "node004")
    assert view is not None
    assert (view.labels[LEAF], view.nics) == ("leaf-r0-7-g0", [])


async def test_what_changes_is_announced_once(scene: GangScene) -> None:
    await take(scene, everything(A))
    before = {row.seq for row in await rows(scene, select(change))}
    assert (await take(scene, everything(A))).machines_changed == 0
    slower = scan(f"{A}/ibnetdiscover.txt")
    end = next(end for end in slower.rates if slower.nodes[end[0]].description == "node007 mlx5_2")
    slower.rates[end] = slower.rates[slower.peers[end]] = "4xHDR"
    outcome = await take(scene, slower)
    assert (outcome.machines_changed, outcome.news.opened) == (1, 1)
    told = {(row.kind, row.key) for row in await rows(scene, select(change)) if row.seq not in before}
    assert {key for kind, key in told if kind == "machine"} == {f"{CLUSTER}/node007"}
    assert ("cluster", CLUSTER) in told


async def test_too_much_lost_is_held_and_applied_by_an_operator(scene: GangScene) -> None:
    await take(scene, everything(A))
    less = without(everything(A), 9)
    held = await take(scene, less)
    assert held.state == "held"
    assert held.why is not None
    assert "lost 72 of 257 links" in held.why
    async with scene.ledger.reading() as tx:
        waiting = await topology.held(tx, CLUSTER)
    assert (waiting.id, waiting.body) == (held.id, b"outputs")
    assert {one.leaf for one in (await scene.snapshot()).machines} == {"leaf-r0-7-g0", "leaf-r0-7-g1"}
    forced = await take(scene, less, force=True)
    assert (forced.state, forced.news.opened) == ("applied", 9)
    lost = [one for one in (await scene.snapshot()).machines if not any(port.up for port in one.ports)]
    assert [one.name for one in lost] == [f"node{i:03}" for i in range(1, 10)]
    states = [row.state for row in await rows(scene, select(topology_scan).order_by(topology_scan.c.at))]
    assert states == ["applied", "discarded", "applied"]
    back = await take(scene, everything(A))
    assert (back.machines_changed, back.news.closed) == (9, 9)
    assert all(port.up for one in (await scene.snapshot()).machines for port in one.ports)


async def test_a_few_lost_links_are_applied(scene: GangScene) -> None:
    await take(scene, everything(A))
    assert (await take(scene, without(everything(A), 4))).state == "applied"


async def test_a_scan_that_overtook_another_is_refused(scene: GangScene) -> None:
    async with scene.ledger.reading() as tx:
        before = await topology.read_state(tx, CLUSTER)
    await take(scene, everything(A))
    with pytest.raises(Conflict, match="send this one again"):
        async with scene.ledger.transaction() as tx:
            await topology.apply(tx, CLUSTER, before, derived(everything(A)), NOTHING, "ada", b"")


async def test_files_and_scans_add_to_each_other(scene: GangScene) -> None:
    site = Site({"node001": {RACK: "r1", LEAF: "by-hand"}})
    assert (await take(scene, Scan(), site=site)).machines_changed == 1
    await take(scene, everything(A))
    labels = {one.name: one.labels for one in (await scene.snapshot()).machines}["node001"]
    assert (labels[RACK], labels[LEAF]) == ("r1", "leaf-r0-7-g0")
    async with scene.ledger.transaction() as tx:
        await topology.forget(tx, CLUSTER, "ada")
    labels = {one.name: one.labels for one in (await scene.snapshot()).machines}["node001"]
    assert (labels[LEAF], RACK in labels, FABRIC in labels, SPINE in labels) == ("leaf-0", False, False, False)
    assert await rows(scene, select(topology_place)) == []


async def test_foreign_labels_are_read_where_agents_report_them(scene: GangScene) -> None:
    facts = (await rows(scene, select(machine.c.facts).where(machine.c.name == "node001")))[0].facts
    facts = {**facts, "labels": {"fabric.topograph.run/tier-0": "tier", "nvidia.com/gpu.clique": "u.1"}}
    await scene.write(update(machine).where(machine.c.name == "node001").values(facts=facts))
    one = next(one for one in (await scene.snapshot()).machines if one.name == "node001")
    assert (one.leaf, one.nvlink_domain) == ("tier", "u.1")


async def test_a_run_hears_that_its_rails_degrade_and_recover(scene: GangScene) -> None:
    await take(scene, everything(A))
    row = await scene.placed("resnet", [("node003", 0xFF), ("node004", 0xFF)])
    hcas = [f"mlx5_{i}:1" for i in range(8)]
    await scene.write(update(claim).values(network=PLACE, rung=3))
    await scene.write(update(run).values(network=PLACE))
    await scene.write(update(allocation).values(hcas=hcas))
    outcome = await take(scene, with_counters(B))
    assert outcome.runs == ("resnet",)
    network = (await rows(scene, select(run.c.network)))[0].network
    # node004's rail 7 is gone, and the slowest of the others runs at half the rate.
    assert network["estimate"]["busbw_gbps"] == round(7 * 200 / 8 * 0.921, 1)
    assert network["network"] == "leaf:leaf-0"
    told = [one.message for one in await rows(scene, select(event).where(event.c.kind == "network"))]
    assert told == [
        "The network is slower than it was, ~161 GB/s all-reduce after ~368: "
        "node003 mlx5_4:1 runs at 200 Gb/s, node004 mlx5_7:1 is down"
    ]
    async with scene.ledger.reading() as tx:
        views = await finding_views(tx, CLUSTER)
    assert {one.place: one.runs for one in views if one.runs} == {
        "node004 mlx5_7": [row.name],
        "node003 mlx5_4": [row.name],
    }
    assert {one.place: costs_of(one) for one in views if one.costs} == {
        "node004 mlx5_7": [(row.name, 322.4, 161.2, "7 × 200 Gb/s rails, × 0.92")],
        "node003 mlx5_4": [(row.name, 322.4, 161.2, "7 × 200 Gb/s rails, × 0.92")],
    }
    assert (await take(scene, everything(A))).runs == ("resnet",)
    network = (await rows(scene, select(claim.c.network)))[0].network
    assert network["estimate"] == PLACE["estimate"]


def costs_of(view: FindingView) -> list[tuple[str, float, float, str]]:
    return [(one.run, one.without.busbw_gbps, one.now.busbw_gbps, one.now.basis) for one in view.costs]


async def test_what_a_finding_costs_follows_the_runs(scene: GangScene) -> None:
    await take(scene, with_counters(B))
    row = await scene.placed("far", [("node001", 0xFF), ("node016", 0xFF)])
    place = {**PLACE, "network": "fabric:f", "estimate": {**PLACE["estimate"], "words": "two leaves"}}
    await scene.write(update(claim).values(network=place, rung=5))
    await scene.write(update(allocation).values(hcas=[f"mlx5_{i}:1" for i in range(8)]))
    async with scene.ledger.reading() as tx:
        views = {one.kind: one for one in await finding_views(tx, CLUSTER) if one.costs}
    assert views.keys() == {"uplink_down", "degraded_uplink"}
    assert views["uplink_down"].runs == ["far"]
    (told,) = costs_of(views["uplink_down"])
    assert told[:3] == ("far", 313.2, 313.2)
    assert told[3].endswith("all-reduce is no slower, all-to-all has 7 of 8 links there")
    (told,) = costs_of(views["degraded_uplink"])
    assert told[:3] == ("far", 313.2, 78.3)
    assert await scene.release(row)
    async with scene.ledger.reading() as tx:
        assert [one for one in await finding_views(tx, CLUSTER) if one.costs or one.runs] == []


async def test_a_run_whose_only_rail_is_gone_hears_it(scene: GangScene) -> None:
    await take(scene, everything(A))
    await scene.placed("resnet", [("node003", 0xFF), ("node004", 0xFF)])
    await scene.write(update(claim).values(network=PLACE, rung=3))
    await scene.write(update(allocation).values(hcas=["mlx5_7:1"]))
    await take(scene, everything(B))
    network = (await rows(scene, select(claim.c.network)))[0].network
    assert (network["estimate"]["busbw_gbps"], network["estimate"]["basis"]) == (0, networks.NO_RAIL)
    async with scene.ledger.reading() as tx:
        views = {one.place: one for one in await finding_views(tx, CLUSTER) if one.costs}
    assert costs_of(views["node004 mlx5_7"])[0][:3] == ("resnet", 322.4, 0.0)


async def test_a_port_that_an_agent_reports_down_is_told_too(scene: GangScene) -> None:
    await scene.placed("resnet", [("node001", 0xFF), ("node002", 0xFF)])
    await scene.write(update(claim).values(network=PLACE, rung=3))
    await scene.write(update(run).values(network=PLACE))
    await scene.write(update(allocation).values(hcas=[f"mlx5_{i}:1" for i in range(8)]))
    agent = FakeAgent(scene.ledger, ["node001"])
    nics = [Nic(device=f"mlx5_{i}", rail=i, gbps=400, up=i != 3) for i in range(8)]
    whole = {"name": "node001", "boot_id": agent.boot_id, "address": "node001.test", "gpus": 8, "gpu_model": "H100"}
    agent.facts["node001"] = MachineFacts(**whole, cpu_cores=96, memory_bytes=2**40, nics=nics)
    await agent.sync()
    network = (await rows(scene, select(run.c.network)))[0].network
    assert network["estimate"]["basis"] == "7 × 400 Gb/s rails, × 0.92"
    (told,) = await rows(scene, select(event.c.message).where(event.c.kind == "network"))
    assert told.message.endswith("~322 GB/s all-reduce after ~368: node001 mlx5_3:1 is down")


async def test_counters_are_judged_by_the_last_reading_in_the_ledger(scene: GangScene) -> None:
    await take(scene, with_counters(B))
    async with scene.ledger.reading() as tx:
        before = await topology.read_state(tx, CLUSTER)
    told = derive(with_counters(B), before.inventory, before.known, before.at + 7200)
    assert {one.kind for one in told.findings} & {"errors", "congested"} == set()
    async with scene.ledger.transaction() as tx:
        outcome = await topology.apply(tx, CLUSTER, before, told, NOTHING, "ada", b"")
    assert (outcome.news.opened, outcome.news.stayed, outcome.news.closed) == (0, 7, 2)


async def test_gangs_without_rails_are_left_alone(scene: GangScene) -> None:
    await scene.placed("one", [("node001", 0xFF)])
    async with scene.ledger.transaction() as tx:
        assert await networks.review(tx, CLUSTER, ["node001"]) == []
        assert await networks.review(tx, CLUSTER, []) == []


async def test_the_median_stands(scene: GangScene) -> None:
    for busbw in (300.0, 320.0, 400.0):
        async with scene.ledger.transaction() as tx:
            standing = await measured.add(
                tx, CLUSTER, "ada", measurement("leaf", "NVIDIA H100 80GB HBM3", busbw, 8, 400)
            )
    assert (standing.gpu_model, standing.value, standing.measurements) == ("h100", 0.8, 3)
    assert (await scene.snapshot()).factors == {"leaf@h100": 0.8}
    async with scene.ledger.transaction() as tx:
        await measured.add(tx, CLUSTER, "ada", measurement("machine", "H100", 480, None, None))
        assert [one.value for one in await measured.views(tx, CLUSTER)] == [0.8, 480.0]


async def test_a_run_measures_its_own_rung(scene: GangScene) -> None:
    row = await scene.placed("resnet", [("node001", 0xFF), ("node002", 0xFF)])
    facts = (await rows(scene, select(machine.c.facts).limit(1)))[0].facts
    facts = {**facts, "gpu_model": "H100", "nics": [{"device": "mlx5_0", "gbps": 400}]}
    await scene.write(update(machine).values(facts=facts))
    async with scene.ledger.reading() as tx:
        cluster, found = await measured.of_run(tx, row.workspace, "resnet", 45.0)
    assert (cluster, found.rung, found.rails, found.gbps, found.value) == (CLUSTER, "leaf", 1, 400.0, 0.9)
    async with scene.ledger.reading() as tx:
        with pytest.raises(NotFound):
            await measured.of_run(tx, row.workspace, "none", 45.0)


@pytest.mark.parametrize(("rails", "gbps", "busbw"), [(None, 400, 1.0), (8, None, 1.0), (8, 400, 3520.0)])
def test_what_cannot_be_is_refused(rails: int | None, gbps: float | None, busbw: float) -> None:
    with pytest.raises(Invalid):
        measurement("leaf", "H100", busbw, rails, gbps)


async def test_the_same_findings_again_are_no_news(scene: GangScene) -> None:
    await take(scene, with_counters(B))
    events = len(await rows(scene, select(event)))
    again: Derived = derived(with_counters(B), inventory(B))
    assert len(again.findings) == 9
    outcome = await take(scene, with_counters(B))
    assert (outcome.news.opened, outcome.news.stayed, outcome.news.closed) == (0, 9, 0)
    assert len(await rows(scene, select(event))) == events
