"""Fabrics that are scanned each by itself, join and part: machines, names and findings stay where they belong."""

import pytest
from support.fabrics import ibnetdiscover
from support.fleet import GangScene
from support.scans import report, take

from astraeus.ledger.core import Ledger
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
