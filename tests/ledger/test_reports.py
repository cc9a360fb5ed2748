import asyncio
import itertools

import pytest
from sqlalchemy import select, update
from support.fleet import FakeAgent, GangScene, Statements, report
from support.scene import CLUSTER

from astraeus.ledger import reports
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import machine
from astraeus.model.agent import WorkerReport
from astraeus.model.errors import Conflict

STATES = ("preparing", "arrived", "running", "exited")


@pytest.fixture
async def scene(ledger: Ledger) -> GangScene:
    return await GangScene.start(ledger)


async def test_a_heartbeat_that_changes_nothing_writes_one_statement_and_announces_nothing(scene: GangScene) -> None:
    _, agent = await scene.running("a", ["m-0", "m-1"])
    statements = Statements(scene.ledger)
    tx = await agent.sync()
    writes = [one for one in statements.take() if one.startswith(("UPDATE", "INSERT", "DELETE"))]
    assert len(writes) == 1
    assert writes[0].startswith("UPDATE machine SET heard_at")
    assert not tx.changes
    assert not tx.outbox


async def test_a_repeated_report_changes_nothing(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    before = await scene.workers(row)
    tx = await agent.sync(report(row, 0, "m-0", "running"), report(row, 1, "m-1", "arrived"))
    assert not tx.changes
    assert not tx.outbox
    assert await scene.workers(row) == before


async def test_progress_is_counted_and_announced_once(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0", "m-1"])
    agent = FakeAgent(scene.ledger, ["m-0", "m-1"])
    tx = await agent.sync(report(row, 0, "m-0", "arrived"), report(row, 1, "m-1", "preparing"))
    assert list(tx.changes) == [("run", f"{row.workspace}/{row.uid}")]
    assert tx.outbox == []
    tx = await agent.sync(report(row, 1, "m-1", "arrived"))
    assert len(tx.outbox) == 1
    assert await scene.kinds(row) == ["arrived"]


async def test_whatever_changes_a_member_is_announced_whether_it_changes_its_gang_or_not(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0", "m-1"])
    agent = FakeAgent(scene.ledger, ["m-0", "m-1"])
    shown = [("run", f"{row.workspace}/{row.uid}")]
    agent.live["m-0"].add(f"{row.uid}/1/0")
    agent.live["m-1"].add(f"{row.uid}/1/1")
    for state in ("preparing", "arrived"):
        for rank in (0, 1):
            assert list((await agent.sync(report(row, rank, f"m-{rank}", state))).changes) == shown, (state, rank)
    await scene.open_gates(row)
    for rank in (0, 1):
        assert list((await agent.sync(report(row, rank, f"m-{rank}", "running"))).changes) == shown, rank
    await scene.stop(row)
    for rank in (0, 1):
        assert list((await agent.sync(report(row, rank, f"m-{rank}", "exited", 1))).changes) == shown, rank


async def test_the_number_of_statements_does_not_grow_with_the_reports(ledger: Ledger) -> None:
    counts = []
    for size, name in ((2, "small"), (40, "large")):
        scene = await GangScene.start(ledger, machines=0)
        places = [f"{name}-{i}" for i in range(size)]
        await scene.add_machines(places)
        row = await scene.gang(name, places)
        agent = FakeAgent(ledger, places)
        statements = Statements(ledger)
        for state, code in (("arrived", None), ("running", None), ("exited", 1)):
            await agent.sync(*(report(row, rank, place, state, code) for rank, place in enumerate(places)))
        counts.append(len(statements.take()))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(STATES, 2)])
async def test_a_report_older_than_the_row_is_dropped(sqlite_ledger: Ledger, first: str, second: str) -> None:
    scene = await GangScene.start(sqlite_ledger)
    row = await scene.gang("a", ["m-0"])
    agent = FakeAgent(sqlite_ledger, ["m-0"])
    agent.live["m-0"].add(f"{row.uid}/1/0")
    await agent.sync(report(row, 0, "m-0", second, 0))
    before = await scene.workers(row)
    await agent.sync(report(row, 0, "m-0", first))
    assert await scene.workers(row) == before


async def test_reports_of_unknown_members_of_other_machines_and_of_released_attempts_are_dropped(
    scene: GangScene,
) -> None:
    row, agent = await scene.running("a", ["m-0"])
    agent.live["m-1"] = set()
    stray = report(row, 0, "m-0", "exited", 1)
    for one in (
        stray.model_copy(update={"attempt": 2}),
        stray.model_copy(update={"rank": 7}),
        stray.model_copy(update={"run_uid": "nobody"}),
        stray.model_copy(update={"machine": "m-1"}),
        stray.model_copy(update={"machine": "elsewhere"}),
    ):
        assert not (await agent.sync(one)).changes
    await scene.release_quietly(row)
    assert not (await agent.sync(stray)).changes
    assert (await scene.workers(row))[0].observed == "running"


async def test_a_crash_before_the_intent_is_a_failure(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    assert (await scene.situation(row)).decided_at is None
    tx = await agent.sync(report(row, 1, "m-1", "exited", 1))
    await scene.order(row, "preempt")
    await scene.stop(row, "preempted")
    situation = await scene.situation(row)
    assert situation.decided_at == tx.now
    assert (situation.failure, situation.cause, situation.failure_machine) == (
        "a-1 exited with code 1",
        "exited",
        "m-1",
    )
    assert situation.intent is None
    assert "failed" in await scene.kinds(row)


async def test_a_crash_after_the_intent_is_stopped(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    await scene.order(row, "preempt")
    await agent.sync(report(row, 1, "m-1", "exited", 1))
    situation = await scene.situation(row)
    assert (situation.failure, situation.intent) == (None, "preempted")
    assert "failed" not in await scene.kinds(row)


async def test_all_exit_0_before_the_cancel_is_a_success(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    for place in agent.live.values():
        place.clear()
    await agent.sync(report(row, 0, "m-0", "exited", 0))
    assert not (await scene.situation(row)).succeeded
    await agent.sync(report(row, 1, "m-1", "exited", 0))
    await scene.order(row, "cancel")
    await scene.stop(row)
    situation = await scene.situation(row)
    assert (situation.succeeded, situation.gone, situation.intent) == (True, True, None)
    assert (await scene.run(row)).state == "Running"
    kinds = await scene.kinds(row)
    assert (kinds.count("ended"), kinds.count("gone")) == (1, 0)


async def test_a_preempted_script_that_exits_0_has_not_succeeded(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    await scene.order(row, "preempt")
    await scene.stop(row, "preempted")
    for place in agent.live.values():
        place.clear()
    await agent.sync(report(row, 0, "m-0", "exited", 0), report(row, 1, "m-1", "exited", 0))
    situation = await scene.situation(row)
    assert (situation.succeeded, situation.failure, situation.gone) == (False, None, True)
    kinds = await scene.kinds(row)
    assert (kinds.count("ended"), kinds.count("gone")) == (0, 1)


async def test_exit_0_of_the_rest_after_a_failure_is_no_success(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    await agent.sync(report(row, 0, "m-0", "exited", 2))
    await agent.sync(report(row, 1, "m-1", "exited", 0))
    assert not (await scene.situation(row)).succeeded


async def test_one_failure_per_attempt_and_the_earliest_stands(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    await agent.sync(
        report(row, 0, "m-0", "exited", 1, age_seconds=1.0), report(row, 1, "m-1", "exited", 134, age_seconds=3.0)
    )
    situation = await scene.situation(row)
    assert (situation.failure, situation.failure_machine) == ("a-1 exited with code 134", "m-1")
    assert (await scene.kinds(row)).count("failed") == 1


async def test_a_later_sync_never_changes_the_failure(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    await agent.sync(report(row, 0, "m-0", "exited", 1))
    await agent.sync(report(row, 1, "m-1", "exited", 9, age_seconds=60.0))
    assert (await scene.situation(row)).failure == "a-0 exited with code 1"


@pytest.mark.parametrize(
    ("told", "cause", "words"),
    [
        ({"state": "exited", "exit_code": 3}, "exited", "a-0 exited with code 3"),
        ({"state": "exited", "signal": 11}, "exited", "a-0 was ended by signal 11"),
        ({"state": "exited"}, "exited", "a-0 ended without an exit code"),
        ({"state": "exited", "exit_code": 2**40}, "exited", f"a-0 exited with code {2**31 - 1}"),
        ({"state": "exited", "signal": 9, "oom": True}, "oom", "a-0 ran out of memory"),
        ({"state": "failed", "error": "no drive\0 here"}, "start_failed", "a-0 could not start: no drive here"),
        ({"state": "failed"}, "start_failed", "a-0 could not start: the agent gave no reason"),
    ],
)
async def test_failures_in_words(scene: GangScene, told: dict[str, object], cause: str, words: str) -> None:
    row = await scene.gang("a", ["m-0"])
    told = {"run_uid": row.uid, "attempt": 1, "rank": 0, "machine": "m-0", **told}
    await FakeAgent(scene.ledger, ["m-0"]).sync(WorkerReport.model_validate(told))
    situation = await scene.situation(row)
    assert (situation.cause, situation.failure) == (cause, words)


async def test_an_out_of_memory_child_of_a_worker_that_exits_0_is_no_failure(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0"])
    await agent.sync(report(row, 0, "m-0", "exited", 0, oom=True))
    assert (await scene.situation(row)).succeeded


async def test_members_are_gone_when_the_last_one_is_and_it_is_said_once(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    agent.live["m-0"].clear()
    await agent.sync(report(row, 0, "m-0", "exited", 1))
    await scene.stop(row, None)
    assert not (await scene.situation(row)).gone
    assert (await scene.situation(row)).lingering == ["a-1"]
    agent.live["m-1"].clear()
    await agent.sync(report(row, 1, "m-1", "exited", 143))
    await agent.sync(report(row, 1, "m-1", "exited", 143))
    assert (await scene.situation(row)).gone
    assert await scene.kinds(row) == ["arrived", "failed", "gone"]


async def test_a_member_that_ended_is_not_gone_while_its_machine_lists_a_process(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0"])
    await scene.stop(row)
    await agent.sync(report(row, 0, "m-0", "exited", 143))
    assert not (await scene.situation(row)).gone
    agent.live["m-0"].clear()
    await agent.sync()
    assert (await scene.situation(row)).gone
    assert (await scene.kinds(row)).count("gone") == 1


async def test_a_member_no_agent_ever_reported_is_gone_once_its_agent_acts_on_the_stop(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0", "m-1"])
    agent = FakeAgent(scene.ledger, ["m-0", "m-1"])
    await agent.sync()
    await agent.read()
    await scene.stop(row)
    await agent.sync()
    assert not (await scene.situation(row)).gone, "the agent may be starting it: it acts on the state before the stop"
    await agent.read()
    agent.live["m-1"].add(f"{row.uid}/1/1")
    await agent.sync()
    assert (await scene.situation(row)).lingering == ["a-1"]
    agent.live["m-1"].clear()
    await agent.read()
    await agent.sync()
    assert (await scene.situation(row)).gone
    assert await scene.kinds(row) == ["gone"]


async def test_a_member_that_runs_is_never_gone_only_because_it_is_not_listed(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0"])
    agent.live["m-0"].clear()
    await agent.read()
    await agent.sync()
    assert not (await scene.situation(row)).gone


async def test_arrivals_after_the_stop_do_not_count(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0", "m-1"])
    agent = FakeAgent(scene.ledger, ["m-0", "m-1"])
    await agent.sync(report(row, 0, "m-0", "arrived"))
    await scene.stop(row, "barrier_timeout", "astraeus")
    await agent.sync(report(row, 1, "m-1", "arrived"))
    situation = await scene.situation(row)
    assert (situation.missing, situation.all_arrived) == (["a-1"], False)


async def test_times_come_from_the_ledgers_clock_whatever_age_is_reported(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0", "m-1"])
    agent = FakeAgent(scene.ledger, ["m-0", "m-1"])
    tx = await agent.sync(
        report(row, 0, "m-0", "arrived", age_seconds=1e300), report(row, 1, "m-1", "arrived", age_seconds=-50)
    )
    granted = (await scene.claim(row)).granted_at
    assert [one.arrived_at for one in await scene.workers(row)] == [granted, tx.now]
    assert (await scene.situation(row)).first_arrived_at == tx.now


async def test_reports_of_an_older_session_are_dropped_after_a_newer_one_registered(scene: GangScene) -> None:
    row, old = await scene.running("a", ["m-0"])
    new = FakeAgent(scene.ledger, ["m-0"], session="s2")
    new.live["m-0"].add(f"{row.uid}/1/0")
    await new.sync()
    with pytest.raises(Conflict, match="newer agent speaks for m-0"):
        await old.sync(report(row, 0, "m-0", "exited", 1))
    old.live["m-1"] = set()
    await old.sync(report(row, 0, "m-0", "exited", 1))
    assert (await scene.situation(row)).failure is None
    await new.sync(report(row, 0, "m-0", "exited", 1))
    assert (await scene.situation(row)).failure == "a-0 exited with code 1"


async def test_an_older_session_takes_over_again_when_the_newer_one_is_silent(scene: GangScene) -> None:
    _, old = await scene.running("a", ["m-0"])
    await FakeAgent(scene.ledger, ["m-0"], session="s2").sync()
    await scene.silent(7, "m-0")
    await scene.write(update(machine).values(session="s2"))
    await old.sync()
    query = select(machine.c.session).where(machine.c.name == "m-0")
    assert [one.session for one in await scene.rows(query)] == ["s"]


async def test_simultaneous_syncs_of_many_agents_count_every_arrival(ledger: Ledger) -> None:
    scene = await GangScene.start(ledger, machines=0)
    places = [f"m-{i}" for i in range(8)]
    await scene.add_machines(places)
    row = await scene.gang("a", places)
    agents = [FakeAgent(ledger, [place], session=place) for place in places]
    arrivals = [agent.sync(report(row, rank, places[rank], "arrived")) for rank, agent in enumerate(agents)]
    await asyncio.gather(*arrivals)
    situation = await scene.situation(row)
    assert (situation.arrived, situation.all_arrived) == (8, True)
    assert await scene.kinds(row) == ["arrived"]
    ends = [agent.sync(report(row, rank, places[rank], "exited", rank % 2)) for rank, agent in enumerate(agents)]
    await asyncio.gather(*ends, scene.stop(row))
    kinds = await scene.kinds(row)
    assert kinds.count("gone") == 1
    assert kinds.count("failed") <= 1
    situation = await scene.situation(row)
    assert (situation.failure is None) != (situation.intent is None)


async def test_an_executor_without_heartbeats_reports_too(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0"])
    async with scene.ledger.transaction() as tx:
        await reports.record(tx, CLUSTER, [report(row, 0, "m-0", "exited", 1)])
    situation = await scene.situation(row)
    assert (situation.failure, situation.gone) == ("a-0 exited with code 1", True)
