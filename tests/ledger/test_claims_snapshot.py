from typing import Any

import pytest
from sqlalchemy import insert, update
from support.scene import CLUSTER, Scene, machine_row

from astraeus.ledger.core import Ledger
from astraeus.ledger.snapshot import load_snapshot
from astraeus.ledger.tables import claim, cluster, machine, nic, run
from astraeus.model.errors import NotFound
from astraeus.model.spec import Resources

RESOURCES = {"gpu_requests": {"count": 8, "models": ["H100"]}, "machines": 1, "topology": {"patience_seconds": 60}}


@pytest.fixture
async def scene(ledger: Ledger) -> Scene:
    return await Scene.start(ledger)


async def test_an_unknown_cluster_is_not_an_empty_one(scene: Scene) -> None:
    async with scene.ledger.reading() as tx:
        with pytest.raises(NotFound):
            await load_snapshot(tx, "nowhere")


async def test_machines_come_with_ports_labels_and_health(scene: Scene) -> None:
    facts = machine_row("m-0", 0)["facts"] | {"broken_gpus": [1], "doubtful_gpus": [0, 7, 7, -1, 99]}
    await scene.write(update(machine).where(machine.c.name == "m-0").values(facts=facts))
    port = {"cluster": CLUSTER, "machine": "m-0", "port": 1, "link": "infiniband"}
    ports = [
        {**port, "device": "mlx5_2", "rail": 2, "gbps": 400.0, "up": True},
        {**port, "device": "mlx5_1", "rail": 1, "gbps": 200.0, "up": False},
    ]
    await scene.write(insert(nic).values(ports))
    first, second = (await scene.snapshot()).machines
    assert (first.name, first.gpus, first.gpu_model, first.broken, first.doubtful) == ("m-0", 8, "H100", 2, 0x81)
    assert [(p.hca, p.rail, p.gbps, p.up) for p in first.ports] == [
        ("mlx5_0:1", 0, 400.0, True),
        ("mlx5_1:1", 1, 200.0, False),
        ("mlx5_2:1", 2, 400.0, True),
    ]
    assert first.leaf == "leaf-0"
    assert (second.name, second.broken, second.doubtful, len(second.ports)) == ("m-1", 0, 0, 1)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({}, None),
        ({"cordoned": True}, "cordoned"),
        ({"cordoned": True, "drained_by": "grace"}, "draining"),
        ({"cordoned": True, "state": "Down"}, "down"),
        ({"state": "Returning"}, "returning"),
    ],
)
async def test_why_a_machine_takes_no_work(scene: Scene, change: dict[str, Any], refusal: str | None) -> None:
    if change:
        await scene.write(update(machine).where(machine.c.name == "m-1").values(**change))
    assert [found.refusal for found in (await scene.snapshot()).machines] == [None, refusal]


async def test_asks_come_in_queue_order_with_what_they_want(scene: Scene) -> None:
    for name, priority in [("late", 0), ("early", 0), ("urgent", 7)]:
        task = {"requested_resources": RESOURCES, "time_limit_seconds": 9}
        await scene.waiting(name, priority=priority, preemptible=priority == 0, task=task)
    await scene.write(update(run).where(run.c.name == "early").values(submitted_at=1.0))
    asks = (await scene.snapshot()).asks
    assert [ask.run_name for ask in asks] == ["urgent", "early", "late"]
    assert [ask.preemptible for ask in asks] == [False, True, True]
    assert asks[0].resources == Resources.model_validate(RESOURCES)
    assert (asks[0].priority, asks[0].workspace, asks[0].attempt) == (7, "acme/vision", 1)
    assert (asks[1].submitted_at, asks[1].avoid, asks[1].time_limit_seconds) == (1.0, frozenset({"m-9"}), 9)


async def test_a_run_that_says_nothing_wants_the_defaults(scene: Scene) -> None:
    await scene.waiting("a")
    (ask,) = (await scene.snapshot()).asks
    assert (ask.resources, ask.time_limit_seconds) == (Resources(), None)


async def test_holdings_tell_whom_an_eviction_would_hit(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 3), ("m-1", 1)], preemptible=False, priority=2)
    first, second = (await scene.snapshot()).holdings
    granted = await scene.claim(row)
    assert (first.machine, first.gpu_mask, second.machine, second.gpu_mask) == ("m-0", 3, "m-1", 1)
    assert (first.priority, first.preemptible, first.started_at) == (2, False, granted.granted_at)
    assert (first.cpu_cores, first.memory_bytes, first.ends_at, first.stopping) == (1.5, 1024, None, False)
    assert (first.run_name, first.workspace, first.claim, first.attempt) == ("a", "acme/vision", granted.id, 1)


async def test_a_time_limit_ends_a_holding_from_the_barrier_on(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 1)], task={"time_limit_seconds": 60})
    (starting,) = (await scene.snapshot()).holdings
    assert (starting.ends_at, starting.time_limit_seconds) == (None, 60)
    await scene.write(update(claim).where(claim.c.run_uid == row.uid).values(gates_opened_at=1000.0))
    (held,) = (await scene.snapshot()).holdings
    assert (held.started_at, held.ends_at, held.preemptible) == (1000.0, 1060.0, True)


@pytest.mark.parametrize("change", [{"intent": "cancelled"}, {"failure": "oom"}, {"succeeded_at": 1.0}])
async def test_what_ends_by_itself_is_stopping(scene: Scene, change: dict[str, Any]) -> None:
    await scene.placed("a", [("m-0", 1)])
    await scene.write(update(claim).values(**change))
    assert (await scene.snapshot()).holdings[0].stopping


async def test_factors_are_the_clusters_own(scene: Scene) -> None:
    assert (await scene.snapshot()).factors == {}
    await scene.write(update(cluster).values(factors={"leaf": 0.9}))
    assert (await scene.snapshot()).factors == {"leaf": 0.9}


async def test_what_is_released_holds_nothing(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 1)])
    await scene.release(row)
    assert (await scene.snapshot()).holdings == ()
