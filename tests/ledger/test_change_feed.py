"""The change feed: every listener hears of every commit, in the order of commits, whatever happens in between."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import func, select, text, update
from support.postgres import PostgresServer

from astraeus.ledger import changes, core
from astraeus.ledger.changes import ChangeHub, prune
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import change
from astraeus.model.errors import Away

PATIENCE = 20.0
GATE = 77
HOLD_SLOW_COMMITS = (
    """
    CREATE FUNCTION wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF NEW.key = 'slow' THEN PERFORM pg_advisory_xact_lock_shared(77); END IF;
      RETURN NULL;
    END $$
    """,
    """
    CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON change DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION wait_at_the_gate()
    """,
)
UNORDERED = text(
    "INSERT INTO change (kind, key, at) SELECT pair.kind, pair.key, :at FROM (SELECT :lock ::bigint) AS held,"
    " unnest(CAST(:kinds AS varchar[]), CAST(:keys AS varchar[])) AS pair(kind, key)"
)
"""The append without its lock."""


@pytest.fixture
async def hub(ledger: Ledger) -> AsyncIterator[ChangeHub]:
    hub = ChangeHub(ledger, poll_seconds=0.002)
    await hub.start()
    yield hub
    await hub.close()


async def say(ledger: Ledger, *pairs: tuple[str, str]) -> None:
    async with ledger.transaction() as tx:
        for pair in pairs:
            tx.announce(*pair)


async def fail(ledger: Ledger) -> None:
    async with ledger.transaction() as tx:
        tx.announce("run", "never")
        raise ZeroDivisionError


async def hear(listener: changes.Listener, least: int) -> set[tuple[str, str]]:
    heard: set[tuple[str, str]] = set()
    async with asyncio.timeout(PATIENCE):
        while len(heard) < least:
            heard.update(await listener.wait(None))
    return heard


async def test_a_kind_and_one_key_of_it(ledger: Ledger, hub: ChangeHub) -> None:
    with hub.listen("run") as runs, hub.listen("machine:lab/m-1", "event") as mixed:
        await say(ledger, ("run", "w/1"), ("machine", "lab/m-1"), ("machine", "lab/m-2"), ("run", "w/1"))
        await say(ledger, ("reason", "w/2"), ("event", "w"))
        assert await hear(runs, 2) == {("run", "w/1"), ("run", "w/2")}
        assert await hear(mixed, 2) == {("machine", "lab/m-1"), ("event", "w")}
        assert await runs.wait(0) == []


async def test_nothing_is_announced_by_a_transaction_that_failed(ledger: Ledger, hub: ChangeHub) -> None:
    with hub.listen("run") as listener:
        with pytest.raises(ZeroDivisionError):
            await fail(ledger)
        await say(ledger, ("run", "then"))
        assert await hear(listener, 1) == {("run", "then")}


async def test_a_commit_right_after_listen_is_heard(ledger: Ledger, hub: ChangeHub) -> None:
    """The poller rests between the rounds, so each one starts it anew."""
    for round in range(5):
        await say(ledger, ("run", f"before {round}"))
        with hub.listen(f"run:{round}") as listener:
            await say(ledger, ("run", str(round)))
            assert await hear(listener, 1) == {("run", str(round))}


async def test_a_hub_that_never_saw_the_database_begins_with_everything(ledger: Ledger) -> None:
    hub = ChangeHub(ledger, poll_seconds=0.002)
    listener = hub.listen("run", "machine:lab/m-1")
    await say(ledger, ("run", "before the first poll"))
    hub._task = asyncio.create_task(hub._run())
    assert await hear(listener, 2) == {("run", ""), ("machine", "lab/m-1")}
    await hub.close()


async def test_waiting_ends_with_the_hub(hub: ChangeHub) -> None:
    listener = hub.listen("run")
    waiting = asyncio.create_task(listener.wait(None))
    await asyncio.sleep(0)
    await hub.close()
    async with asyncio.timeout(PATIENCE):
        assert await waiting == [("run", "")]
        assert await listener.wait(None) == []


async def test_no_poll_without_listeners(ledger: Ledger, hub: ChangeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    polls = asyncio.Semaphore(0)
    probe = hub._probe

    async def counted(*args: object) -> object:
        polls.release()
        return await probe(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(hub, "_probe", counted)
    await say(ledger, ("run", "unheard"))
    assert polls.locked()
    with hub.listen("event"):
        async with asyncio.timeout(PATIENCE):
            await polls.acquire()
    assert not hub._wanted.is_set()


async def test_concurrent_writers_lose_nothing(ledger: Ledger, hub: ChangeHub) -> None:
    writers, each = 8, 25
    others = [Ledger(ledger.url) for _ in range(writers)]

    async def write(number: int) -> None:
        for i in range(each):
            await say(others[number], ("run", f"{number}/{i}"))

    with hub.listen("run") as listener:
        writing = asyncio.gather(*(write(number) for number in range(writers)))
        heard = await hear(listener, writers * each)
        await writing
    for other in others:
        await other.close()
    assert heard == {("run", f"{number}/{i}") for number in range(writers) for i in range(each)}


@pytest.fixture
async def gated(postgres_ledger_url: str) -> AsyncIterator[Ledger]:
    """A PostgreSQL ledger where committing a change with the key "slow" waits for the gate."""
    ledger = Ledger(postgres_ledger_url)
    async with ledger.engine.begin() as conn:
        for statement in HOLD_SLOW_COMMITS:
            await conn.execute(text(statement))
    yield ledger
    await ledger.close()


async def waiting_for_locks(ledger: Ledger, count: int) -> None:
    async with asyncio.timeout(PATIENCE), ledger.engine.connect() as conn:
        query = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        while (await conn.execute(query)).scalar_one() < count:
            await conn.execute(text("SELECT pg_sleep(0.01)"))


async def race(ledger: Ledger, second_waits: bool) -> set[tuple[str, str]]:
    """What a listener hears when "slow" gets the lower number but "fast" asks to commit while "slow" still does."""
    hub = ChangeHub(ledger, poll_seconds=0.002)
    await hub.start()
    with hub.listen("run") as listener:
        async with ledger.engine.connect() as gate:
            await gate.execute(text("SELECT pg_advisory_lock(:gate)"), {"gate": GATE})
            slow = asyncio.create_task(say(ledger, ("run", "slow")))
            await waiting_for_locks(ledger, 1)
            fast = asyncio.create_task(say(ledger, ("run", "fast")))
            if second_waits:
                await waiting_for_locks(ledger, 2)
                heard = set(await listener.wait(0.05))
            else:
                await fast
                heard = await hear(listener, 1)
            await gate.execute(text("SELECT pg_advisory_unlock(:gate)"), {"gate": GATE})
        await asyncio.gather(slow, fast)
        await say(ledger, ("run", "last"))
        while ("run", "last") not in heard:
            heard |= await hear(listener, 1)
    await hub.close()
    return heard


async def test_a_slow_commit_is_not_passed(gated: Ledger) -> None:
    assert await race(gated, second_waits=True) == {("run", "slow"), ("run", "fast"), ("run", "last")}


async def test_without_the_lock_it_would_be(gated: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows that the test above can fail."""
    monkeypatch.setitem(core.APPEND, "postgresql", UNORDERED)
    assert await race(gated, second_waits=False) == {("run", "fast"), ("run", "last")}


async def test_the_database_goes_away_and_comes_back(
    postgres: PostgresServer,
    postgres_ledger_url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "RETRY_MOST", 0.2)
    ledger, other = Ledger(postgres_ledger_url), Ledger(postgres_ledger_url)
    hub = ChangeHub(ledger, poll_seconds=0.002)
    await hub.start()
    noticed = asyncio.Event()
    monkeypatch.setattr(changes.log, "warning", lambda *_: noticed.set())
    with hub.listen("run") as listener:
        await say(other, ("run", "before"))
        assert await hear(listener, 1) == {("run", "before")}
        postgres.stop()
        try:
            async with asyncio.timeout(PATIENCE):
                await noticed.wait()
            with pytest.raises(Away):
                await say(other, ("run", "never"))
        finally:
            postgres.start()
        await say(other, ("run", "after"))
        assert await hear(listener, 1) == {("run", "after")}
    await hub.close()
    await ledger.close()
    await other.close()


async def test_after_a_long_pause_a_pruned_feed_is_noticed(ledger: Ledger, hub: ChangeHub) -> None:
    await say(ledger, ("run", "1"), ("run", "2"), ("run", "3"))
    async with ledger.transaction() as tx:
        await tx.conn.execute(update(change).values(at=0.0))
        assert await prune(tx, 3600) == 2
    hub._seen_at -= 2 * changes.PRUNED_SECONDS
    with hub.listen("machine", "event:w") as listener:
        assert await hear(listener, 2) == {("machine", ""), ("event", "w")}


async def test_prune_keeps_the_young_and_the_newest(ledger: Ledger) -> None:
    for key in ("old", "young"):
        await say(ledger, ("run", key))
    async with ledger.transaction() as tx:
        await tx.conn.execute(update(change).where(change.c.key == "old").values(at=tx.now - 4000))
        assert await prune(tx, 3600) == 1
        await tx.conn.execute(update(change).values(at=0.0))
        assert await prune(tx, 0) == 0
        assert (await tx.conn.execute(select(func.count()).select_from(change))).scalar_one() == 1
