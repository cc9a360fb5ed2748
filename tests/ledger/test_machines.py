import pytest
from sqlalchemy import select, update
from support.fleet import FakeAgent, GangScene, report
from support.scene import CLUSTER

from astraeus.ledger import gangs, machines
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import event, machine, nic
from astraeus.model.errors import Invalid, NotFound
from astraeus.model.machine import MachineFacts, MachineView, Nic


@pytest.fixture
async def scene(ledger: Ledger) -> GangScene:
    return await GangScene.start(ledger)


def facts(name: str, boot_id: str = "boot", **changes: object) -> MachineFacts:
    known = {"name": name, "boot_id": boot_id, "address": f"{name}.test", "gpus": 8, "cpu_cores": 96.0}
    return MachineFacts.model_validate({**known, "memory_bytes": 2**40, **changes})


async def view(scene: GangScene, name: str) -> MachineView:
    async with scene.ledger.reading() as tx:
        found = await machines.get(tx, CLUSTER, name)
    assert found is not None
    return found


async def test_an_unknown_machine_is_asked_for_its_facts_and_then_ready(scene: GangScene) -> None:
    agent = FakeAgent(scene.ledger, ["new"])
    tx = await agent.sync()
    assert agent.need_facts == ["new"]
    assert not tx.changes
    agent.facts["new"] = facts("new", gpu_model="H100", nics=[Nic(device="mlx5_0", gbps=400)], broken_gpus=[3])
    tx = await agent.sync()
    assert agent.need_facts == []
    assert list(tx.changes) == [("machine", "lab-a/new"), ("cluster", "lab-a")]
    shown = await view(scene, "new")
    assert (shown.state, shown.gpu_model, shown.gpus, shown.free_gpus) == ("Ready", "H100", 8, 7)
    assert [(row.device, row.gbps) for row in await scene.rows(select(nic).where(nic.c.machine == "new"))] == [
        ("mlx5_0", 400)
    ]
    assert not (await agent.sync()).changes


async def test_changed_facts_replace_the_old_ones(scene: GangScene) -> None:
    agent = FakeAgent(scene.ledger, ["m-0"])
    agent.facts["m-0"] = facts("m-0", doubtful_gpus=[1], nics=[Nic(device="mlx5_9", gbps=200, up=False)])
    tx = await agent.sync()
    assert ("cluster", "lab-a") in tx.changes
    assert (await view(scene, "m-0")).doubtful_gpus == [1]
    rows = await scene.rows(select(nic).where(nic.c.machine == "m-0"))
    assert [(row.device, row.up) for row in rows] == [("mlx5_9", False)]
    assert not (await agent.sync()).changes


@pytest.mark.parametrize("name", ["", "M-0", "a/b", " m", "a\0b", "x" * 254])
async def test_a_name_that_is_no_machines_is_refused(scene: GangScene, name: str) -> None:
    with pytest.raises(Invalid, match="cannot name a machine"):
        await FakeAgent(scene.ledger, [name]).sync()


async def test_a_machine_with_too_many_gpus_is_refused(scene: GangScene) -> None:
    agent = FakeAgent(scene.ledger, ["big"])
    agent.facts["big"] = facts("big", gpus=64)
    with pytest.raises(Invalid, match="at most 63"):
        await agent.sync()


async def test_a_reboot_loses_what_ran_and_asks_for_facts(scene: GangScene) -> None:
    row, _ = await scene.running("a", ["m-0", "m-1"])
    again = FakeAgent(scene.ledger, ["m-0"], session="s2", boot_id="boot-2")
    await again.sync()
    assert again.need_facts == ["m-0"]
    assert (await scene.situation(row)).failure == "a-0 lost its machine"
    assert (await view(scene, "m-0")).state == "Ready"
    again.facts["m-0"] = facts("m-0", "boot-2")
    await again.sync()
    assert again.need_facts == []


async def test_a_reboot_before_anything_was_begun_costs_nothing(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0"])
    await FakeAgent(scene.ledger, ["m-0"], session="s2", boot_id="boot-2").sync()
    situation = await scene.situation(row)
    assert (situation.failure, situation.gone) == (None, False)


async def test_an_exit_record_that_survived_the_reboot_counts_before_the_loss(scene: GangScene) -> None:
    row, _ = await scene.running("a", ["m-0"])
    again = FakeAgent(scene.ledger, ["m-0"], session="s2", boot_id="boot-2")
    await again.sync(report(row, 0, "m-0", "exited", 0))
    situation = await scene.situation(row)
    assert (situation.succeeded, situation.failure) == (True, None)


async def test_a_lost_machine_is_ready_only_when_it_has_proved_its_old_work_dead(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0"])
    async with scene.ledger.transaction() as tx:
        await tx.conn.execute(update(machine).where(machine.c.name == "m-0").values(state="Down"))
        await gangs.lose(tx, CLUSTER, ["m-0"])
    tx = await agent.sync(report(row, 0, "m-0", "running"))
    assert ("cluster", "lab-a") in tx.changes
    assert (await view(scene, "m-0")).state == "Returning"
    await agent.read()
    assert agent.workers == []
    await agent.sync()
    assert (await view(scene, "m-0")).state == "Returning", "a fenced process is live"
    agent.live["m-0"].clear()
    stale, agent.seen = agent.seen, "older"
    await agent.sync()
    assert (await view(scene, "m-0")).state == "Returning", "the agent acts on an older state"
    agent.seen = stale
    tx = await agent.sync()
    assert ("machine", "lab-a/m-0") in tx.changes
    assert (await view(scene, "m-0")).state == "Ready"
    kinds = [one.kind for one in await scene.rows(select(event).where(event.c.kind.like("machine%")))]
    assert kinds == ["machine_returned", "machine_returned"]


async def test_an_unknown_machine_with_live_processes_must_prove_them_dead_first(scene: GangScene) -> None:
    agent = FakeAgent(scene.ledger, ["new"])
    agent.facts["new"] = facts("new")
    agent.live["new"].add("somebody/1/0")
    await agent.sync()
    await agent.read()
    await agent.sync()
    assert (await view(scene, "new")).state == "Returning"
    agent.live["new"].clear()
    await agent.sync()
    assert (await view(scene, "new")).state == "Ready"


async def drain(scene: GangScene, name: str, actor: str = "grace", why: str | None = "bad fan") -> list[int]:
    async with scene.ledger.transaction() as tx:
        await machines.drain(tx, CLUSTER, name, actor, why)
    return tx.outbox


async def test_a_drain_cordons_and_moves_whole_gangs_free_of_charge(scene: GangScene) -> None:
    row, _ = await scene.running("a", ["m-0", "m-1"])
    assert len(await drain(scene, "m-1")) == 1
    situation = await scene.situation(row)
    assert (situation.intent, situation.intent_by, situation.intent_why) == ("drained", "grace", "bad fan")
    message = (await scene.messages(row))[-1]
    assert (message.kind, message.body) == ("preempt", {"attempt": 1, "who": "grace", "why": "bad fan"})
    shown = await view(scene, "m-1")
    assert (shown.cordoned, shown.drain, shown.drain_reason, shown.drained_by, shown.runs) == (
        True,
        "draining",
        "bad fan",
        "grace",
        ["a"],
    )
    assert await drain(scene, "m-1") == []
    await scene.release(row)
    assert (await view(scene, "m-1")).drain == "drained"
    assert (await view(scene, "m-0")).drain is None


async def test_a_drain_leaves_an_attempt_whose_end_is_decided(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0"])
    await agent.sync(report(row, 0, "m-0", "exited", 1))
    assert await drain(scene, "m-0") == []
    assert (await scene.situation(row)).intent is None


async def test_a_drained_machine_gets_nothing_until_it_is_returned(scene: GangScene) -> None:
    await drain(scene, "m-0", why=None)
    assert (await view(scene, "m-0")).drain == "drained"
    with pytest.raises(AssertionError):
        await scene.placed("a", [("m-0", 0xFF)])
    async with scene.ledger.transaction() as tx:
        await machines.return_machine(tx, CLUSTER, "m-0", "grace")
    shown = await view(scene, "m-0")
    assert (shown.cordoned, shown.drain, shown.drained_by) == (False, None, None)
    await scene.placed("b", [("m-0", 0xFF)])


async def test_a_cordon_lets_run_what_runs(scene: GangScene) -> None:
    row, _ = await scene.running("a", ["m-0"])
    for _ in range(2):
        async with scene.ledger.transaction() as tx:
            await machines.cordon(tx, CLUSTER, "m-0", "grace", "look at it")
    assert not tx.changes
    assert (await scene.situation(row)).intent is None
    said = [one.message for one in await scene.rows(select(event).where(event.c.kind == "cordoned"))]
    assert said == ["m-0 takes no new work: look at it"]


async def test_orders_to_an_unknown_machine_say_so(scene: GangScene) -> None:
    async with scene.ledger.transaction() as tx:
        for order in (machines.drain, machines.cordon, machines.return_machine):
            with pytest.raises(NotFound, match="no machine nowhere"):
                await order(tx, CLUSTER, "nowhere", "grace")
        assert await machines.get(tx, CLUSTER, "nowhere") is None


async def test_pages_of_machines_are_in_order_and_end(scene: GangScene) -> None:
    await scene.add_machines([f"x-{i}" for i in range(5)])
    names: list[str] = []
    cursor = None
    async with scene.ledger.reading() as tx:
        for _ in range(4):
            page, cursor = await machines.machine_views(tx, CLUSTER, 3, cursor)
            names += [one.name for one in page]
            if cursor is None:
                break
        assert names == ["m-0", "m-1", "x-0", "x-1", "x-2", "x-3", "x-4"]
        for wrong in ("!", "", "AA", "é"):
            with pytest.raises(Invalid, match="cursor"):
                await machines.machine_views(tx, CLUSTER, 3, wrong)
