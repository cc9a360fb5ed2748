"""Fabrics that are scanned each by itself, join and part: machines, names and findings stay where they belong."""

import pytest
from sqlalchemy import select
from support.fabrics import C1, A, E, everything, ibnetdiscover, scan, truth
from support.fleet import GangScene
from support.scans import report, rows, take, without
from support.scene import CLUSTER

from astraeus.ledger import topology
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import topology_fabric, topology_finding
from astraeus.topology.ibnetdiscover import parse
from astraeus.topology.scan import Scan

RAILS = tuple(f"mlx5_{i}" for i in range(8))


def compute() -> Scan:
    return parse(ibnetdiscover(16, group=8, pod=2, devices=RAILS, number=1))


def storage() -> Scan:
    return parse(ibnetdiscover(16, group=16, pod=1, devices=("mlx5_8",), number=2, rate="4xHDR"))


def plane(number: int) -> Scan:
    """One of two fabrics of the same speed."""
    return parse(ibnetdiscover(16, group=16, pod=1, devices=(f"mlx5_{number}",), number=number))


async def two_fabrics(ledger: Ledger, *fabrics: Scan) -> GangScene:
    scene = await GangScene.start(ledger, 0)
    await scene.add_machines([f"node{i:04}" for i in range(1, 17)])
    await report(scene, *fabrics)
    return scene


async def spots(scene: GangScene) -> set[tuple[str | None, tuple[str, ...]]]:
    """The fabrics of the machines, each with the ports that it has for training."""
    machines = (await scene.snapshot()).machines
    return {(one.fabric, tuple(port.device for port in one.ports if port.up)) for one in machines}


@pytest.mark.parametrize("order", ["cs", "sc", "csc", "scs"])
async def test_a_machine_is_on_the_fabric_of_most_of_its_bandwidth_whichever_was_scanned_last(
    ledger: Ledger, order: str
) -> None:
    scene = await two_fabrics(ledger, compute(), storage())
    scans = {"c": compute, "s": storage}
    last = [await take(scene, scans[one]()) for one in order][-1]
    assert await spots(scene) == {("ib-0x2c5e010300000000", RAILS)}
    assert len({one.leaf for one in (await scene.snapshot()).machines}) == 2
    assert last.machines_changed == (16 if len(order) == 2 else 0)


@pytest.mark.parametrize("order", [(1, 2, 1), (2, 1, 2)])
async def test_of_two_fabrics_of_one_speed_it_is_always_the_same(ledger: Ledger, order: tuple[int, ...]) -> None:
    scene = await two_fabrics(ledger, plane(1), plane(2))
    for number in order:
        await take(scene, plane(number))
    assert await spots(scene) == {("ib-0x2c5e010300000000", ("mlx5_1",))}


async def test_a_port_that_moved_to_the_machines_own_fabric_is_for_training(ledger: Ledger) -> None:
    scene = await two_fabrics(ledger, compute(), storage())
    await take(scene, compute())
    await take(scene, storage())
    assert {ports for _, ports in await spots(scene)} == {RAILS}
    more = parse(ibnetdiscover(16, group=8, pod=2, devices=(*RAILS, "mlx5_8"), number=1))
    await report(scene, more)
    await take(scene, more, force=True)
    assert {ports for _, ports in await spots(scene)} == {(*RAILS, "mlx5_8")}


def fat_tree(cut: int | None = None) -> Scan:
    """A fabric that is named by its lowest switch, perhaps without the links between a switch and others."""
    found = scan(f"{E}/ibnetdiscover.txt")
    found.initiator = None
    switches = {guid for guid, node in found.nodes.items() if node.switch}
    for end in [end for end, peer in found.peers.items() if end[0] == cut and peer[0] in switches]:
        found.peers.pop(found.peers.pop(end))
    return found


def leaf_of(found: Scan, machine: str) -> int:
    (nic,) = [guid for guid, node in found.nodes.items() if node.description == f"{machine} HCA-1"]
    return found.peers[nic, 1][0]


async def machines_of(ledger: Ledger, *folders: str) -> GangScene:
    scene = await GangScene.start(ledger, 0)
    await scene.add_machines([name for folder in folders for name in truth(folder)["machines"]])
    await report(scene, *(scan(f"{folder}/ibnetdiscover.txt") for folder in folders))
    return scene


async def switches_of(scene: GangScene) -> dict[str, int]:
    """The fabrics that are known, with the numbers of their switches."""
    return {row.name: len(row.identity["switches"]) for row in await rows(scene, select(topology_fabric))}


async def opened(scene: GangScene) -> set[tuple[str, str]]:
    query = select(topology_finding).where(topology_finding.c.closed_at.is_(None))
    return {(row.kind, row.fabric) for row in await rows(scene, query)}


async def test_what_is_cut_off_has_a_name_of_its_own_until_it_is_joined_again(ledger: Ledger) -> None:
    scene = await machines_of(ledger, E)
    low = min(guid for guid, node in fat_tree().nodes.items() if node.switch)
    name = f"ib-0x{low:016x}"
    await take(scene, fat_tree())
    whole = await switches_of(scene)
    await take(scene, fat_tree(cut=low), force=True)
    assert await switches_of(scene) == {name: whole[name] - 1, f"{name}-2": 1}
    await take(scene, fat_tree())
    assert await switches_of(scene) == whole
    assert {one.fabric for one in (await scene.snapshot()).machines} == {name}


async def test_findings_of_a_fabric_that_was_joined_to_another_are_closed(ledger: Ledger) -> None:
    scene = await machines_of(ledger, E)
    before = fat_tree()
    leaf = leaf_of(before, "node015")
    await take(scene, before)
    (whole,) = await switches_of(scene)
    apart = fat_tree(cut=leaf)
    for end in [end for end in apart.peers if end[0] == leaf]:
        if not apart.nodes[apart.peers[end][0]].description.startswith("node015 "):
            apart.peers.pop(apart.peers.pop(end))
    apart.counted, apart.counters[leaf, 1] = True, {"SymbolErrorCounter": 4711}
    await take(scene, apart, force=True)
    found = {kind for kind, fabric in await opened(scene) if fabric != whole}
    assert found == {"isolated", "errors"}
    await take(scene, fat_tree(), force=True)
    assert (await opened(scene), set(await switches_of(scene))) == (set(), {whole})


async def test_a_scan_that_is_held_waits_whatever_other_fabrics_are_scanned(ledger: Ledger) -> None:
    scene = await machines_of(ledger, A)
    await take(scene, everything(A))
    await take(scene, everything(C1))
    held = await take(scene, without(everything(A), 9))
    assert held.state == "held"
    await take(scene, everything(C1))
    async with scene.ledger.reading() as tx:
        waiting = await topology.held(tx, CLUSTER)
    assert (waiting.id, waiting.body) == (held.id, b"outputs")
    await take(scene, everything(A))
    async with scene.ledger.reading() as tx:
        assert await topology.held(tx, CLUSTER) is None
