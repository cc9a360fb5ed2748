"""Machine leases: when silence means that a machine is lost. The rules are pure; one function applies them.

Everything is reckoned on the ledger's clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select, update

from astraeus.ledger import gangs
from astraeus.ledger.core import Tx
from astraeus.ledger.members import lock
from astraeus.ledger.notices import cluster_event
from astraeus.ledger.rooms import lock_cluster
from astraeus.ledger.tables import cluster, machine
from astraeus.model.agent import HEARTBEAT_SECONDS, LOST_AFTER_SECONDS, MISSED_BEATS
from astraeus.model.errors import NotFound, StaleTerm

HELD_SHARE = 0.2
"""More than this share of a cluster lost at once is likelier a switch, or our own network."""

GAP_SECONDS = MISSED_BEATS * HEARTBEAT_SECONDS
"""A watch that looked away for longer than this does not know whether the silence was its own."""


@dataclass(frozen=True)
class Beat:
    """A machine's lease: when it was last heard; `down_since` when it is lost already."""

    name: str
    heard_at: float
    down_since: float | None = None


@dataclass(frozen=True)
class Watch:
    """The watch itself: since when it has looked, when it looked last, since when it holds declarations.

    `alarmed_at` is when the present hold raised its alarm, None while it kept nobody from being declared lost.
    `served_at` is the last beat of an API process, through which machines are heard; None before the first.
    """

    resumed_at: float
    watched_at: float
    held_since: float | None = None
    alarmed_at: float | None = None
    served_at: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What a look at the leases decided: machines to declare lost, and the watch from here on."""

    lost: tuple[str, ...]
    watch: Watch
    silent: int = 0
    alarm: bool = False

    @property
    def held(self) -> bool:
        """Whether nobody is declared lost, however silent."""
        return self.watch.held_since is not None


def silence(now: float, watch: Watch, beat: Beat) -> float:
    """Seconds for which a machine was silent while the watch was there to hear it."""
    return max(0.0, now - max(beat.heard_at, watch.resumed_at))


def resumed(now: float, watch: Watch) -> Watch:
    """The watch taken up again; after a gap, its own or of those who hear machines, all get a fresh period."""
    looked = watch.watched_at if watch.served_at is None else min(watch.watched_at, watch.served_at)
    fresh = now - looked > GAP_SECONDS
    return replace(watch, watched_at=now, resumed_at=now if fresh else watch.resumed_at)


def judge(now: float, watch: Watch, beats: Sequence[Beat]) -> Verdict:
    """Who is lost now.

    A machine is lost after more than 15 s of silence, which is more than five missed beats. Declarations are held
    while more than a fifth of the cluster (but more than one machine) is silent at once: those that have missed five
    beats, and those declared lost within the last period. A hold that keeps somebody from being declared lost raises
    one alarm. When a hold ends, whoever is still silent gets a fresh period, since it was likely cut off with the
    others.
    """
    watch = resumed(now, watch)
    missed = MISSED_BEATS * HEARTBEAT_SECONDS
    quiet = {beat.name: silence(now, watch, beat) for beat in beats if beat.down_since is None}
    overdue = tuple(sorted(name for name, seconds in quiet.items() if seconds > max(LOST_AFTER_SECONDS, missed)))
    doubtful = sum(seconds > missed for seconds in quiet.values())
    recent = sum(beat.down_since is not None and now - beat.down_since <= LOST_AFTER_SECONDS for beat in beats)
    if doubtful and doubtful + recent > max(1, int(HELD_SHARE * len(beats))):
        alarm = bool(overdue) and watch.alarmed_at is None
        held = replace(watch, held_since=watch.held_since or now, alarmed_at=now if alarm else watch.alarmed_at)
        return Verdict((), held, doubtful, alarm)
    if watch.held_since is not None:
        return Verdict((), replace(watch, held_since=None, alarmed_at=None, resumed_at=now), doubtful)
    return Verdict(overdue, watch, doubtful)


async def serve(tx: Tx) -> None:
    """The beat of whoever hears the machines: while no API process beats, silence means nothing."""
    await tx.conn.execute(update(cluster).values(served_at=tx.now))


async def resume_watch(tx: Tx, name: str) -> int:
    """A new term for the cluster's watch; an older one can declare nothing from here on. Raises NotFound."""
    query = update(cluster).where(cluster.c.name == name).values(watch_term=cluster.c.watch_term + 1).returning(cluster)
    row = (await tx.conn.execute(query)).one_or_none()
    if row is None:
        raise NotFound(f"There is no cluster {name}")
    await _keep(tx, name, resumed(tx.now, _of(row)))
    return int(row.watch_term)


async def expire_leases(tx: Tx, name: str, term: int) -> list[str]:
    """Look at the leases once; answers the machines declared lost.

    Raises StaleTerm, having written nothing, when another watch took over. Holding back many declarations raises one
    alarm for as long as it lasts.
    """
    watch = await _watch(tx, name, term)
    verdict = judge(tx.now, watch, await _beats(tx, name))
    await _keep(tx, name, verdict.watch)
    if verdict.alarm:
        message = (
            f"{verdict.silent} machines of {name} fell silent at once; none is declared lost, "
            "since the network is likelier at fault: check it, or declare them lost by hand"
        )
        await cluster_event(tx, name, "alarm", "watch", message)
    return await _declare(tx, name, verdict.lost, "watch")


async def declare_lost(tx: Tx, name: str, machines: Sequence[str], actor: str) -> list[str]:
    """An operator's word that machines are lost, whatever the watch holds back; those heard lately are not."""
    # As a watch does: no pass may place a gang on them meanwhile.
    await tx.conn.execute(lock_cluster(name))
    limit = tx.now - MISSED_BEATS * HEARTBEAT_SECONDS
    query = select(machine.c.name).where(
        machine.c.cluster == name, machine.c.name.in_(machines), machine.c.state != "Down", machine.c.heard_at < limit
    )
    return await _declare(tx, name, list(await tx.conn.scalars(query)), actor)


async def _watch(tx: Tx, name: str, term: int) -> Watch:
    """The watch as kept, locked until the commit so that its term stays what it is."""
    query = select(cluster).where(cluster.c.name == name).with_for_update(key_share=True)
    row = (await tx.conn.execute(query)).one_or_none()
    if row is None or row.watch_term != term:
        raise StaleTerm(f"Another watch of {name} has begun; this one (term {term}) must end")
    return _of(row)


def _of(row: Any) -> Watch:
    return Watch(row.watch_resumed_at, row.watched_at, row.held_since, row.alarmed_at, row.served_at)


async def _keep(tx: Tx, name: str, watch: Watch) -> None:
    kept = {
        "watch_resumed_at": watch.resumed_at,
        "watched_at": watch.watched_at,
        "held_since": watch.held_since,
        "alarmed_at": watch.alarmed_at,
    }
    await tx.conn.execute(update(cluster).where(cluster.c.name == name).values(kept))


async def _beats(tx: Tx, name: str) -> list[Beat]:
    query = select(machine.c.name, machine.c.heard_at, machine.c.state, machine.c.state_since)
    rows = await tx.conn.execute(query.where(machine.c.cluster == name))
    return [Beat(row.name, row.heard_at, row.state_since if row.state == "Down" else None) for row in rows]


async def _declare(tx: Tx, name: str, machines: Sequence[str], actor: str) -> list[str]:
    """Declare machines lost, unless they were heard at the last moment, and lose what ran on them."""
    if not machines:
        return []
    # Claims before machines, as everyone; only then is it certain that a machine is still silent.
    await lock(tx, await gangs.claims_on(tx, name, machines))
    limit = tx.now - MISSED_BEATS * HEARTBEAT_SECONDS
    down = (
        update(machine)
        .where(machine.c.cluster == name, machine.c.name.in_(machines))
        .where(machine.c.state != "Down", machine.c.heard_at < limit)
        .values(state="Down", state_since=tx.now)
        .returning(machine.c.name, machine.c.heard_at)
    )
    lost = {row.name: tx.now - row.heard_at for row in await tx.conn.execute(down)}
    for machine_name, seconds in sorted(lost.items()):
        message = f"{machine_name} is lost: not heard for {seconds:.0f} s"
        await cluster_event(tx, name, "machine_lost", actor, message)
        tx.announce("machine", f"{name}/{machine_name}")
    if lost:
        tx.announce("cluster", name)
        await gangs.lose(tx, name, list(lost))
    return sorted(lost)
