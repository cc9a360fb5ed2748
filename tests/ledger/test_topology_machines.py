"""Machines that come, go and are renamed, as the scans see them."""

import pytest
from sqlalchemy import insert, select, update
from support.fabrics import A, everything, scan, text, truth
from support.fleet import GangScene
from support.scans import report, rows, take, without

from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import machine, nic, topology_finding
from astraeus.topology.ibnetdiscover import parse


@pytest.fixture
async def scene(ledger: Ledger) -> GangScene:
    """The machines of a fixture, as their agents report them."""
    found = await GangScene.start(ledger, 0)
    await found.add_machines(truth(A)["machines"])
    await report(found, scan(f"{A}/ibnetdiscover.txt"))
    return found


async def missing(scene: GangScene) -> list[str]:
    query = select(topology_finding.c.place).where(
        topology_finding.c.kind == "machine_missing", topology_finding.c.closed_at.is_(None)
    )
    return [row.place for row in await rows(scene, query)]


async def test_a_machine_is_missing_until_it_is_back(scene: GangScene) -> None:
    await take(scene, everything(A))
    for _ in range(3):
        await take(scene, without(everything(A), 2))
        assert await missing(scene) == ["node001", "node002"]
    await take(scene, without(everything(A), 1))
    assert await missing(scene) == ["node001"]
    await take(scene, everything(A))
    assert await missing(scene) == []


async def test_a_renamed_machine_keeps_its_adapters(scene: GangScene) -> None:
    await take(scene, everything(A))
    await scene.add_machines(["alpha001"])
    (new,) = await rows(scene, select(machine.c.heard_at).where(machine.c.name == "alpha001"))
    await scene.write(update(machine).where(machine.c.name == "node001").values(heard_at=new.heard_at - 60))
    await scene.write(nic.delete().where(nic.c.machine == "alpha001"))
    old = await rows(scene, select(nic).where(nic.c.machine == "node001"))
    await scene.write(insert(nic).values([{**port._mapping, "machine": "alpha001"} for port in old]))
    for _ in range(2):
        await take(scene, parse(text(f"{A}/ibnetdiscover.txt").replace('"node001 ', '"alpha001 ')))
        assert await missing(scene) == []
    machines = {one.name: one for one in (await scene.snapshot()).machines}
    assert (machines["alpha001"].leaf, len(machines["alpha001"].ports)) == ("leaf-r0-7-g0", 8)
    assert not any(port.up for port in machines["node001"].ports)
