"""`/agent/v1`: where agents report and learn what must run on their machines."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import ValidationError

from api.auth import Machine, State
from api.body import decode, read_bytes
from api.openapi import WITH_BODY, WITH_TOKEN, body, octets, problems
from api.routes.common import AGENTS
from api.services import agents
from astraeus.model.agent import Launch, SyncRequest, SyncResponse
from astraeus.model.faults import BadSpec, faults_of

router = APIRouter(prefix=AGENTS, tags=["agents"])

SYNC_MAX = 32 * 1024 * 1024
"""Room for the facts of thousands of machines behind one agent."""


@router.post(
    "/sync",
    response_model=SyncResponse,
    responses=WITH_BODY | problems(409),
    openapi_extra=body(SyncRequest),
    summary="Report, and learn what must run",
)
async def sync(request: Request, state: State, caller: Machine) -> Response:
    """Held back up to `wait_seconds` while there is nothing newer than `seen`."""
    try:
        report = SyncRequest.model_validate(decode(await read_bytes(request, SYNC_MAX)), strict=True)
    except ValidationError as error:
        raise BadSpec(faults_of(error, SyncRequest)) from error
    answer = await agents.sync(state, caller, report)
    return Response(answer.model_dump_json(), media_type="application/json")


@router.get(
    "/launch/{run_uid:segment}/{attempt:segment}",
    responses=WITH_TOKEN | problems(409),
    summary="What an attempt runs",
)
async def launch(
    state: State,
    caller: Machine,
    run_uid: Annotated[str, Path(description="The run's uid.")],
    attempt: Annotated[int, Path(ge=1, le=2**31 - 1)],
    response: Response,
) -> Launch:
    """Holds secrets."""
    response.headers["Cache-Control"] = "no-store"
    return await agents.launch(state, caller, run_uid, attempt)


@router.post(
    "/logs/{id:segment}",
    status_code=204,
    response_class=Response,
    responses=WITH_TOKEN | problems(410),
    openapi_extra=octets(),
    summary="Send a log to its reader",
)
async def logs(
    request: Request,
    state: State,
    caller: Machine,
    id: Annotated[str, Path(description="The id of the log request.")],
) -> None:
    """Taken as fast as the reader reads; `410` and a closed connection when the reader leaves."""
    await agents.receive_log(state, caller, id, request.stream())
