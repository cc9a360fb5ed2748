"""Processes that survive SIGKILL: their machine is kept out of new work, and their run does not wait for them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import or_, select, update

from astraeus.ledger import gangs, machines
from astraeus.ledger.core import Tx
from astraeus.ledger.hearing import CONTACT_SECONDS
from astraeus.ledger.members import Gang, lock_attempt, save
from astraeus.ledger.tables import machine, worker
from astraeus.model import words
from astraeus.model.agent import KILLED_SECONDS
from astraeus.model.messages import AttemptRef

ACTOR = "astraeus"


async def disown(tx: Tx, ref: AttemptRef) -> list[str]:
    """Give up on members that outlived their stop, as their machines show; answers `<worker> on <machine>`.

    All of the attempt that were given up on are answered, by whichever call: an answer may be lost after its commit.
    A machine that is silent says nothing about its processes: its lease decides. One that could not be told of the
    stop has killed nobody yet, so what counts is how long it has been heard, without a gap, since the stop was
    ordered. The members' machines are cordoned; the members count as gone from here on, and stay fenced by their
    attempt.
    """
    gang = await lock_attempt(tx, ref.run_uid, ref.attempt)
    if gang is None:
        return []
    enough = tx.now - KILLED_SECONDS - worker.c.grace_seconds
    query = (
        select(worker.c.rank, worker.c.machine)
        .join(machine, (machine.c.cluster == worker.c.cluster) & (machine.c.name == worker.c.machine))
        .where(worker.c.run_uid == ref.run_uid, worker.c.attempt == ref.attempt, ~worker.c.gone)
        .where(worker.c.desired == "stop", or_(worker.c.stop_at.is_(None), worker.c.stop_at <= enough))
        .where(machine.c.heard_at >= tx.now - CONTACT_SECONDS, machine.c.heard_since <= enough)
        .order_by(worker.c.rank)
    )
    if undead := (await tx.conn.execute(query)).all():
        await _give_up(tx, gang, undead)
    return (await gangs.situation(tx, ref)).undead


async def _give_up(tx: Tx, gang: Gang, undead: Sequence[Any]) -> None:
    await tx.conn.execute(
        update(worker)
        .where(worker.c.run_uid == gang.run_uid, worker.c.attempt == gang.attempt)
        .where(worker.c.rank.in_([row.rank for row in undead]))
        .values(gone=True, lost=True, disowned=True, ended_at=tx.now)
    )
    gang.turned += len(undead)
    await save(tx, [gang])
    for name in sorted({row.machine for row in undead}):
        ranks = [row.rank for row in undead if row.machine == name]
        await machines.cordon(tx, gang.cluster, name, ACTOR, words.undead([gang.name(rank) for rank in ranks]))
