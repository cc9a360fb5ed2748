import pytest
from sqlalchemy import update
from support.fleet import FakeAgent, GangScene, Statements, ref, report
from support.scene import CLUSTER

from astraeus.ledger import tenancy
from astraeus.ledger.cipher import Cipher
from astraeus.ledger.core import Ledger
from astraeus.ledger.desired import desired, desired_version, launch
from astraeus.ledger.tables import machine
from astraeus.model.agent import DesiredWorker, Launch
from astraeus.model.errors import Conflict, Invalid, NotFound

MACHINES = ["m-0", "m-1"]


@pytest.fixture
async def scene(ledger: Ledger) -> GangScene:
    return await GangScene.start(ledger)


@pytest.fixture
def cipher() -> Cipher:
    return Cipher.from_text(Cipher.generate_text())


async def ask(scene: GangScene, *names: str) -> tuple[str, list[DesiredWorker]]:
    async with scene.ledger.reading() as tx:
        answer = await desired(tx, CLUSTER, names or MACHINES)
        assert await desired_version(tx, CLUSTER, names or MACHINES) == answer[0]
    return answer


async def test_a_worker_is_told_everything_about_its_place(scene: GangScene) -> None:
    await scene.gang("a", MACHINES)
    _, workers = await ask(scene)
    assert [(one.name, one.machine, one.desired, one.gpus) for one in workers] == [
        ("a-0", "m-0", "hold", list(range(8))),
        ("a-1", "m-1", "hold", list(range(8))),
    ]
    env = workers[1].env
    assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"]) == ("1", "2", "m-0.test")
    assert (env["ASTRAEUS_WORKSPACE"], env["ASTRAEUS_NETWORK"]) == ("acme/vision", "leaf:leaf-0")
    assert env["NCCL_IB_HCA"] == "=mlx5_0:1"


async def test_the_answer_is_only_about_the_machines_asked_for(scene: GangScene) -> None:
    await scene.gang("a", MACHINES)
    _, workers = await ask(scene, "m-1")
    assert [one.name for one in workers] == ["a-1"]
    assert (await ask(scene, "elsewhere"))[1] == []


async def test_the_version_changes_whenever_the_answer_does(scene: GangScene) -> None:
    seen = {(await ask(scene))[0]}

    async def moved() -> bool:
        version, _ = await ask(scene)
        new = version not in seen
        seen.add(version)
        return new

    row = await scene.gang("a", MACHINES)
    assert await moved()
    agent = FakeAgent(scene.ledger, MACHINES)
    await agent.sync(report(row, 0, "m-0", "arrived"), report(row, 1, "m-1", "arrived"))
    assert not await moved()
    await scene.open_gates(row)
    assert await moved()
    await scene.write(update(machine).values(facts={"boot_id": "boot", "socket_ifname": "eth7"}))
    assert await moved()
    await agent.sync(report(row, 0, "m-0", "exited", 1))
    assert await moved()
    await scene.stop(row, None)
    assert not await moved()
    await scene.release(row)
    assert (await ask(scene))[1] == []


async def test_members_of_a_released_attempt_are_wanted_no_more(scene: GangScene) -> None:
    row = await scene.gang("a", MACHINES)
    await scene.release_quietly(row)
    assert (await ask(scene))[1] == []


async def test_the_number_of_statements_does_not_grow_with_the_machines(ledger: Ledger) -> None:
    scene = await GangScene.start(ledger, machines=0)
    names = [f"m-{i}" for i in range(50)]
    await scene.add_machines(names)
    await scene.gang("a", names)
    statements = Statements(ledger)
    async with ledger.reading() as tx:
        _, workers = await desired(tx, CLUSTER, names)
    assert len(workers) == 50
    assert len([one for one in statements.take() if "FROM worker" in one]) == 1


async def read_launch(scene: GangScene, cipher: Cipher, row: object, attempt: int = 1) -> Launch:
    async with scene.ledger.reading() as tx:
        return await launch(tx, cipher, ref(row, attempt))  # type: ignore[arg-type]


async def test_a_launch_holds_what_the_user_wrote_drives_and_opened_secrets(scene: GangScene, cipher: Cipher) -> None:
    async with scene.ledger.transaction() as tx:
        await tenancy.put_drive(tx, scene.workspace.id, "ckpt", "shared", "/mnt/ckpt")
        await tenancy.put_secret(tx, cipher, scene.workspace.id, "KEY", "s3cret", "ada")
    task = {
        "image": "pytorch",
        "command": "bash",
        "args": ["-c", "true"],
        "env": {"STEPS": "5"},
        "secret_env": ["KEY"],
        "drives": [{"name": "ckpt", "mount_path": "/ckpt", "mode": "ReadOnly"}],
        "configs": [{"mounts": ["/app/x.py"], "value": "pass"}],
    }
    row = await scene.gang("a", ["m-0"], task=task)
    told = await read_launch(scene, cipher, row)
    assert (told.run_name, told.workspace, told.image) == ("a", "acme/vision", "pytorch")
    assert (told.command, told.args, told.env) == ("bash", ["-c", "true"], {"STEPS": "5", "KEY": "s3cret"})
    assert [one.model_dump() for one in told.drives] == [
        {
            "workspace": "acme/vision",
            "name": "ckpt",
            "kind": "shared",
            "path": "/mnt/ckpt",
            "mount_path": "/ckpt",
            "read_only": True,
        }
    ]
    assert (told.configs[0].mounts, told.configs[0].value) == (["/app/x.py"], "pass")
    assert told.memory_bytes == 1024


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ({"drives": [{"name": "nowhere", "mount_path": "/x"}]}, "no drive named nowhere"),
        ({"secret_env": ["NOBODYS"]}, "no secret named NOBODYS"),
    ],
)
async def test_a_launch_names_what_is_missing(
    scene: GangScene, cipher: Cipher, task: dict[str, object], named: str
) -> None:
    row = await scene.gang("a", ["m-0"], task=task)
    with pytest.raises(Invalid, match=named):
        await read_launch(scene, cipher, row)


async def test_there_is_no_launch_of_an_attempt_that_is_unknown_or_over(scene: GangScene, cipher: Cipher) -> None:
    row = await scene.gang("a", ["m-0"])
    with pytest.raises(NotFound):
        await read_launch(scene, cipher, row, attempt=2)
    await scene.release(row)
    with pytest.raises(Conflict, match="start nothing"):
        await read_launch(scene, cipher, row)
