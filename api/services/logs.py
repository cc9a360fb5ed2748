"""A worker's log, asked of its machine's agent, which sends the bytes to this very process."""

import asyncio
import uuid
from dataclasses import dataclass

from api.auth import Scope
from api.relay import Relay, Relays
from api.services.runs import row_named
from api.state import AppState
from astraeus.ledger import logs, machines, runs, views
from astraeus.ledger.core import Tx
from astraeus.ledger.runs import RunRow
from astraeus.model.agent import LOST_AFTER_SECONDS, LogRequest
from astraeus.model.errors import Away, NotFound
from astraeus.model.independent import worker_uid
from astraeus.model.names import split_worker_name

ANSWER_SECONDS = 10.0
"""How long a machine has to begin sending: its agent's next sync, and a connection back."""


@dataclass(frozen=True)
class LogQuery:
    """Which part of a log. `tail` is how many last lines to begin with; `attempt` None: the latest placed."""

    attempt: int | None = None
    tail: int | None = None
    follow: bool = False


@dataclass(frozen=True)
class OpenLog:
    """A log that has begun to arrive. Whoever reads must `close` it."""

    id: str
    relay: Relay
    relays: Relays

    def close(self) -> None:
        """End the upload, if it still goes on."""
        self.relays.drop(self.id)


async def open_log(scope: Scope, name: str, worker: str, query: LogQuery) -> OpenLog:
    """Ask for a log and wait until it begins. Raises `NotFound`, and `Away` when the machine does not answer."""
    state = scope.state
    id = uuid.uuid4().hex
    async with state.ledger.transaction() as tx:
        row, rank = await _lives(tx, await row_named(tx, scope, name), worker)
        attempt, machine = await _where(tx, row, rank, query.attempt)
        await _check_machine(tx, row.cluster, machine)
        relay = state.relays.open(id, row.cluster)
        request = LogRequest(
            id=id,
            run_uid=row.uid,
            attempt=attempt,
            rank=rank,
            machine=machine,
            tail=query.tail,
            follow=query.follow,
            reply_to=state.replica_url or state.public_url,
        )
        await logs.ask(tx, row.cluster, request)
    try:
        await asyncio.wait_for(relay.connected.wait(), ANSWER_SECONDS)
    except TimeoutError as error:
        raise Away(f"The machine {machine} did not send the log within {ANSWER_SECONDS:.0f} s.") from error
    finally:
        if not relay.connected.is_set():
            state.relays.drop(id)
            await asyncio.shield(forget(state, id))
    return OpenLog(id, relay, state.relays)


async def forget(state: AppState, id: str) -> None:
    """Take a request back: it is being served, or nobody waits any more."""
    async with state.ledger.transaction() as tx:
        await logs.forget(tx, id)


async def _lives(tx: Tx, row: RunRow, worker: str) -> tuple[RunRow, int]:
    """The run that a worker's attempts are of, its own where workers start one by one, and its rank."""
    parts = split_worker_name(worker)
    if parts is None or parts[0] not in (row.name, row.uid) or parts[1] >= 10**6:
        raise NotFound(f"{row.name} has no worker {worker!r}; its workers are {row.name}-0, {row.name}-1 and so on.")
    if not row.is_parent:
        return row, parts[1]
    own = await runs.by_uid(tx, worker_uid(row.uid, parts[1]))
    if own is None:
        raise NotFound(f"{row.name} has no worker {parts[1]}; it has {row.size}.")
    return own, parts[1]


async def _where(tx: Tx, row: RunRow, rank: int, attempt: int | None) -> tuple[int, str]:
    placed = await views.last_placed(tx, row.uid)
    if placed is None:
        raise NotFound(f"{row.worker or row.name} has not been placed yet; it has no logs.")
    attempt = placed if attempt is None else attempt
    for view in await views.worker_views(tx, row.uid, attempt):
        if view.rank == rank and view.machine is not None:
            return attempt, view.machine
    raise NotFound(f"{row.name} has no worker {rank} in attempt {attempt}.")


async def _check_machine(tx: Tx, cluster: str, machine: str) -> None:
    view = await machines.get(tx, cluster, machine)
    if view is None:
        raise Away(f"The machine {machine}, which keeps this log, is not known any more.")
    silent = view.heard_seconds_ago
    if view.state == "Down" or (silent is not None and silent > LOST_AFTER_SECONDS):
        raise Away(f"The machine {machine}, which keeps this log, is away.")
