import asyncio

import pytest
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from support.scene import CLUSTER, WHOLE, Scene

from astraeus.ledger import claims
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import allocation, claim, machine, reservation, run, worker
from astraeus.model.errors import Conflict, NotFound
from astraeus.model.messages import AttemptRef


@pytest.fixture
async def scene(ledger: Ledger) -> Scene:
    return await Scene.start(ledger)


async def test_entering_is_idempotent_and_shows_the_headline(scene: Scene) -> None:
    row = await scene.submit("a")
    await scene.enter(row, patience=900, headline="Gang restart: a-0 lost its machine")
    first = await scene.claim(row)
    await scene.enter(row)
    again = await scene.claim(row)
    assert first == again
    assert first.state == "Waiting"
    assert first.patience_until == first.entered_at + 900
    assert first.avoid == ["m-9"]
    present = await scene.run(row)
    assert (present.attempt, present.state) == (1, "Pending")
    assert present.reason == "Gang restart: a-0 lost its machine"


async def test_entering_again_says_whether_the_room_was_granted(scene: Scene) -> None:
    waiting, placed = await scene.submit("a"), await scene.placed("b", [("m-0", WHOLE)])
    assert [await scene.enter(waiting), await scene.enter(waiting), await scene.enter(placed)] == [False, False, True]


async def test_attempts_only_grow(scene: Scene) -> None:
    row = await scene.submit("a")
    await scene.enter(row, attempt=2)
    with pytest.raises(Conflict, match="still has a claim"):
        await scene.enter(row, attempt=3)
    with pytest.raises(Conflict, match="is over"):
        await scene.enter(row, attempt=1)
    assert await scene.release(row, attempt=2)
    for attempt in (1, 2):
        with pytest.raises(Conflict, match="is over"):
            await scene.enter(row, attempt=attempt)
    await scene.enter(row, attempt=3)
    assert (await scene.run(row)).attempt == 3


async def test_a_final_run_and_an_unknown_one_get_no_claim(scene: Scene) -> None:
    row = await scene.waiting("a")
    await scene.release(row, state="Cancelled")
    with pytest.raises(Conflict, match="final"):
        await scene.enter(row, attempt=2)
    async with scene.ledger.transaction() as tx:
        with pytest.raises(NotFound):
            await claims.enter(tx, "nobody", 1, CLUSTER, 0)


async def test_simultaneous_entries_make_one_claim(scene: Scene) -> None:
    row = await scene.submit("a")
    await asyncio.gather(*(scene.enter(row) for _ in range(8)))
    assert len(await scene.rows(select(claim))) == 1


async def test_the_database_itself_allows_one_live_claim_per_run(scene: Scene) -> None:
    row = await scene.waiting("a")
    second = insert(claim).values(
        run_uid=row.uid, attempt=2, cluster=CLUSTER, state="Waiting", entered_at=0, patience_until=0
    )
    with pytest.raises(IntegrityError):
        await scene.write(second)


async def test_widening_ends_patience_once(scene: Scene) -> None:
    row = await scene.submit("a")
    await scene.enter(row, patience=900)
    ref = AttemptRef(run_uid=row.uid, attempt=1)
    async with scene.ledger.transaction() as tx:
        await claims.widen(tx, ref)
    assert list(tx.changes) == [("run", f"{scene.workspace.id}/{row.uid}"), ("cluster", CLUSTER)]
    assert (await scene.claim(row)).patience_until == tx.now
    async with scene.ledger.transaction() as tx:
        await claims.widen(tx, ref)
    assert not tx.changes


async def test_terms_grow_and_belong_to_known_clusters(scene: Scene) -> None:
    terms = await asyncio.gather(*(scene.term() for _ in range(8)))
    assert sorted(terms) == list(range(1, 9))
    async with scene.ledger.transaction() as tx:
        with pytest.raises(NotFound):
            await claims.take_pass_term(tx, "nowhere")


async def test_release_gives_the_room_back_and_records_the_end(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", WHOLE), ("m-1", 0b1111)])
    other = await scene.placed("b", [("m-1", 0b110000)])
    assert await scene.used() == {"m-0": WHOLE, "m-1": 0b111111}
    placed = (await scene.claim(row)).id
    await scene.write(
        insert(reservation).values(claim=placed, cluster=CLUSTER, machine="m-0", gpu_mask=1, created_at=0)
    )
    members = select(worker).where(worker.c.run_uid == row.uid)
    assert await scene.release(row, next_earned_seconds=600.0)
    assert await scene.used() == {"m-1": 0b110000}
    ended = await scene.claim(row)
    assert (ended.state, ended.cause, ended.charged) == ("Released", "exited", True)
    assert ended.detail == "a-0 exited with code 1"
    present = await scene.run(row)
    assert (present.state, present.budget_left, present.network) == ("Pending", 9, None)
    assert all(found.gone and found.desired == "stop" for found in await scene.rows(members))
    assert await scene.rows(select(reservation)) == []
    kinds = [kind for kind, _, _ in await scene.events(row)]
    assert kinds[-2:] == ["state", "attempt_ended"]
    assert (await scene.run(other)).state == "Starting"
    await scene.check()


async def test_release_announces_machines_cluster_and_run(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", WHOLE), ("m-1", 0b1111)])
    async with scene.ledger.transaction() as tx:
        await claims.release(
            tx,
            AttemptRef(run_uid=row.uid, attempt=1),
            cause="preempted",
            detail="d",
            charged=False,
            state="Pending",
            reason="r",
            budget_left=10,
        )
    assert {("machine", "lab-a/m-0"), ("machine", "lab-a/m-1"), ("cluster", "lab-a")} <= set(tx.changes)
    assert ("run", f"{scene.workspace.id}/{row.uid}") in tx.changes


async def test_room_is_given_back_once_however_often_and_at_once_it_is_released(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 0b11)])
    assert sorted(await asyncio.gather(*(scene.release(row) for _ in range(6)))) == [False] * 5 + [True]
    await scene.placed("c", [("m-0", 0b11)])
    assert not await scene.release(row)
    assert await scene.used() == {"m-0": 0b11}
    await scene.check()


async def test_a_waiting_claim_is_withdrawn(scene: Scene) -> None:
    row = await scene.waiting("a")
    assert await scene.release(row, cause="held", charged=False, reason="Held by ada", budget_left=10)
    assert (await scene.claim(row)).state == "Released"
    assert (await scene.snapshot()).asks == ()
    await scene.check()


async def test_a_final_state_stays_and_keeps_its_network(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 1)])
    await scene.release(row, state="Succeeded", cause="succeeded", reason="All workers exited with code 0")
    present = await scene.run(row)
    assert (present.state, present.final) == ("Succeeded", True)
    assert present.network is not None
    assert present.finished_at is not None
    assert present.hidden_at is None
    assert not await scene.release(row, state="Failed")
    assert (await scene.run(row)).state == "Succeeded"


async def test_a_deleted_run_is_hidden_when_it_ends(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 1)])
    await scene.order(row, "delete")
    assert (await scene.run(row)).hidden_at is None
    await scene.release(row, state="Cancelled")
    assert (await scene.run(row)).hidden_at is not None


async def test_the_end_of_an_older_attempt_says_nothing_about_the_run(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 1)])
    await scene.write(update(run).where(run.c.uid == row.uid).values(attempt=2, reason="of attempt 2"))
    assert await scene.release(row, state="Failed")
    present = await scene.run(row)
    assert (present.state, present.reason) == ("Starting", "of attempt 2")
    assert await scene.used() == {}


@pytest.mark.parametrize("attempt", [1, 2])
async def test_the_end_of_an_attempt_that_the_ledger_lost_is_written_once(scene: Scene, attempt: int) -> None:
    """Of the attempt that the run has, or of a later one than a backup knows."""
    row = await scene.waiting("a")
    await scene.write(delete(claim).where(claim.c.run_uid == row.uid))
    ending = {"state": "Cancelled", "cause": "cancelled", "reason": "Cancelled by ada", "charged": False}
    said = await asyncio.gather(*(scene.release(row, attempt, detail="Cancelled by ada", **ending) for _ in range(4)))
    assert sorted(said) == [False] * 3 + [True]
    present = await scene.run(row)
    assert (present.state, present.reason, present.attempt) == ("Cancelled", "Cancelled by ada", attempt)
    assert [kind for kind, _, _ in await scene.events(row)] == ["submitted", "state", "attempt_ended"]
    ended = await scene.claim(row, attempt)
    assert (ended.state, ended.cause, ended.granted_at) == ("Released", "cancelled", None)
    await scene.check()


async def test_a_run_whose_lost_attempt_ended_goes_on_with_the_next(scene: Scene) -> None:
    row = await scene.waiting("a")
    await scene.write(delete(claim).where(claim.c.run_uid == row.uid))
    assert await scene.release(row, attempt=2)
    assert (await scene.run(row)).reason == "Gang restart: a-0 exited with code 1"
    with pytest.raises(Conflict, match="is over"):
        await scene.enter(row, attempt=2)
    assert not await scene.enter(row, attempt=3)
    assert not await scene.release(row, attempt=1, state="Failed")
    assert (await scene.run(row)).state == "Pending"


async def test_fractions_of_cores_leave_no_trace(scene: Scene) -> None:
    rows = [await scene.placed(f"r{i}", [("m-0", 1 << i)]) for i in range(3)]
    await scene.write(update(allocation).values(cpu_cores=0.1))
    await scene.write(update(machine).where(machine.c.name == "m-0").values(used_cpu=0.1 + 0.1 + 0.1))
    for row in rows:
        await scene.release(row)
    assert {found.used_cpu for found in await scene.rows(select(machine))} == {0.0}
