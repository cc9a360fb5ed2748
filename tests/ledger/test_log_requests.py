"""Log requests: asked of one machine, taken back by id, and forgotten by themselves."""

from sqlalchemy import func, select, update
from support.tenants import CLUSTER, workspace

from astraeus.ledger import logs
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import change, log_request
from astraeus.model.agent import LogRequest


def wish(id: str, machine: str) -> LogRequest:
    return LogRequest(
        id=id, run_uid="u", attempt=1, rank=0, machine=machine, tail=3, follow=True, reply_to="http://127.0.0.1:1"
    )


async def test_asked_of_one_machine(ledger: Ledger) -> None:
    await workspace(ledger)
    async with ledger.transaction() as tx:
        assert await logs.ask(tx, CLUSTER, wish("a", "m-1")) == "a"
        await logs.ask(tx, CLUSTER, wish("b", "m-2"))
        await logs.ask(tx, "lab-b", wish("c", "m-1"))
    async with ledger.reading() as tx:
        assert await logs.requests_for(tx, CLUSTER, ["m-1", "m-9"]) == [wish("a", "m-1")]
        assert await logs.requests_for(tx, CLUSTER, ["m-2", "m-1"]) == [wish("a", "m-1"), wish("b", "m-2")]
        assert await logs.requests_for(tx, CLUSTER, []) == []
        keys = (await tx.conn.execute(select(change.c.key).where(change.c.kind == "machine"))).scalars().all()
    assert keys == [f"{CLUSTER}/m-1", f"{CLUSTER}/m-2", "lab-b/m-1"]


async def test_taken_back(ledger: Ledger) -> None:
    async with ledger.transaction() as tx:
        await logs.ask(tx, CLUSTER, wish("a", "m-1"))
        await logs.forget(tx, "a")
        await logs.forget(tx, "a")
        assert await logs.requests_for(tx, CLUSTER, ["m-1"]) == []


async def test_forgotten_by_themselves(ledger: Ledger) -> None:
    async with ledger.transaction() as tx:
        await logs.ask(tx, CLUSTER, wish("a", "m-1"))
        await tx.conn.execute(update(log_request).values(expires_at=tx.now))
        assert await logs.requests_for(tx, CLUSTER, ["m-1"]) == []
        await logs.ask(tx, CLUSTER, wish("b", "m-1"))
        assert (await tx.conn.execute(select(func.count()).select_from(log_request))).scalar_one() == 1
