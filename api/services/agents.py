"""The agents' side: their reports into the ledger, the desired state back, and log uploads."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from api.errors import ReaderLeft
from api.relay import ReaderGone
from api.services.logs import forget
from api.state import AppState
from astraeus.ledger import desired, logs, reports, runs
from astraeus.ledger.core import Tx
from astraeus.ledger.tenancy import Caller
from astraeus.model.agent import Launch, LogRequest, SyncRequest, SyncResponse
from astraeus.model.errors import Invalid, NotAllowed, NotFound
from astraeus.model.messages import AttemptRef
from astraeus.model.names import canonical

WAIT_MOST_SECONDS = 30.0


async def sync(state: AppState, caller: Caller, request: SyncRequest) -> SyncResponse:
    """Record a report, then answer with the desired state once it differs from what the agent has seen."""
    cluster = _cluster(caller, request)
    names = [machine.name for machine in request.machines]
    if request.report_only:
        need_facts = await _record(state, cluster, request)
        return SyncResponse(version=request.seen or "", need_facts=need_facts)
    with state.hub.listen(*(f"machine:{cluster}/{name}" for name in names)) as listener:
        need_facts = await _record(state, cluster, request)
        deadline = asyncio.get_running_loop().time() + min(request.wait_seconds, WAIT_MOST_SECONDS)
        while True:
            response, asked = await _answer(state, cluster, names, request.seen, need_facts)
            left = deadline - asyncio.get_running_loop().time()
            if response.workers is not None or need_facts or left <= 0:
                return response
            if state.handed_out.new(request.session, asked):
                return response
            await listener.wait(left)


def _cluster(caller: Caller, request: SyncRequest) -> str:
    cluster = canonical(request.cluster) if request.cluster is not None else caller.cluster
    if cluster is None:
        raise Invalid("The token is for every cluster; say in `cluster` which one these machines are in.")
    if not speaks_for(caller, cluster):
        raise NotAllowed(f"The token {caller.name!r} is for the cluster {caller.cluster}, not for {cluster}.")
    return cluster


def speaks_for(caller: Caller, cluster: str) -> bool:
    """Whether a machine's token is good for a cluster."""
    return caller.cluster in (None, cluster)


async def _record(state: AppState, cluster: str, request: SyncRequest) -> list[str]:
    async with state.ledger.transaction() as tx:
        need_facts = await reports.sync(tx, cluster, request)
    state.deliver_later(tx)
    return need_facts


async def _answer(
    state: AppState, cluster: str, names: Sequence[str], seen: str | None, need_facts: list[str]
) -> tuple[SyncResponse, frozenset[str]]:
    async with state.ledger.reading() as tx:
        version, workers = await desired.desired(tx, cluster, list(names))
        asked = await _log_requests(tx, cluster, names)
    response = SyncResponse(
        version=version, workers=None if version == seen else workers, need_facts=need_facts, logs=asked
    )
    return response, frozenset(request.id for request in asked)


async def _log_requests(tx: Tx, cluster: str, names: Sequence[str]) -> list[LogRequest]:
    return list(await logs.requests_for(tx, cluster, list(names)))


async def launch(state: AppState, caller: Caller, run_uid: str, attempt: int) -> Launch:
    """What every worker of an attempt runs. Raises `NotFound`, also for a run of another cluster."""
    async with state.ledger.reading() as tx:
        row = await runs.by_uid(tx, run_uid) if run_uid.isalnum() else None
        if row is None or not speaks_for(caller, row.cluster):
            raise NotFound(f"There is no run {run_uid!r} for this token.")
        return await desired.launch(tx, state.cipher, AttemptRef(run_uid=run_uid, attempt=attempt))


async def receive_log(state: AppState, caller: Caller, id: str, chunks: AsyncIterator[bytes]) -> None:
    """Hand an upload over to its reader. Raises `NotFound` when nobody waits for it, `ReaderLeft` later."""
    relay = state.relays.waiting(id)
    if relay is None or not speaks_for(caller, relay.cluster):
        raise NotFound("Nobody waits for this log, or not any more.")
    relay.connected.set()
    state.background.start(forget(state, id), "forgetting a log request")
    try:
        await relay.upload(chunks)
    except ReaderGone as error:
        raise ReaderLeft("The reader has left.") from error
