"""What is held follows the gangs that hold it, whatever becomes of the description of a machine."""

from support.fleet import WHOLE, FakeAgent, GangScene

from astraeus.ledger.core import Ledger
from astraeus.model.machine import MachineFacts


def facts(name: str, gpus: int, leaf: str) -> MachineFacts:
    return MachineFacts(
        name=name,
        boot_id="boot",
        address="127.0.0.1",
        gpus=gpus,
        gpu_model="NVIDIA H100 80GB HBM3",
        cpu_cores=64,
        memory_bytes=2**38,
        labels={"topology.astraeus.io/leaf": leaf},
    )


async def test_facts_that_change_leave_what_is_held(ledger: Ledger) -> None:
    """PG14, TO14: a machine is described anew while a gang runs on it, with fewer GPUs and on another leaf."""
    scene = await GangScene.start(ledger)
    row = await scene.gang("held", ["m-0", "m-1"])
    agent = FakeAgent(ledger, ["m-0", "m-1"])
    await agent.read()
    for gpus in (7, 8):
        agent.facts = {"m-0": facts("m-0", gpus, f"leaf-{gpus}")}
        await agent.sync()
        assert await scene.used() == {"m-0": WHOLE, "m-1": WHOLE}
        found = {machine.name: machine for machine in (await scene.snapshot()).machines}
        assert found["m-0"].gpus == gpus
    await scene.check()
    await scene.release(row)
    assert await scene.used() == {}
