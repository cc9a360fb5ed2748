"""`/runs/{name}/logs/{worker}`: a worker's log as a byte stream."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.auth import Credentials, Viewer, still_good
from api.openapi import WITH_TOKEN
from api.routes.common import BASE, Run, Switch, on
from api.services.logs import LogQuery, OpenLog, open_log

router = APIRouter(prefix=BASE, tags=["runs"])

OCTETS = "application/octet-stream"
BYTES = {"description": "The bytes", "content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}}}


class LogResponse(StreamingResponse):
    """Streams a log, and ends its upload whatever becomes of the reader."""

    def __init__(self, log: OpenLog, may_read: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(log.relay.read(may_read), media_type=OCTETS, headers={"Cache-Control": "no-store"})
        self.log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it all."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.log.close()


@router.get(
    "/runs/{name:segment}/logs/{worker:segment}",
    response_class=Response,
    responses=WITH_TOKEN | {200: BYTES},
    summary="A worker's log",
)
async def log(
    scope: Viewer,
    credentials: Credentials,
    name: Run,
    worker: Annotated[str, Path(description="`<run>-<rank>`, with the run's name or uid.")],
    attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Absent: the latest that was placed.")] = None,
    tail: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Begin at the last so many lines.")] = None,
    follow: Annotated[Switch, Query(description="Go on until the worker has ended.")] = "0",
) -> LogResponse:
    """Exactly the bytes the worker wrote, kept for each attempt."""
    token = credentials.credentials if credentials else ""
    log = await open_log(scope, name, worker, LogQuery(attempt, tail, on(follow)))
    return LogResponse(log, partial(still_good, scope, token))
