"""`/events`: what happened in the workspace, as pages or as it happens."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from api.auth import Credentials, Viewer
from api.openapi import WITH_TOKEN
from api.routes.common import BASE, Cursor, Limit, Switch, on
from api.services import events
from api.services.events import EventPage

router = APIRouter(prefix=BASE, tags=["events"])

STREAM = "text/event-stream"
TWO_FORMS = {
    "description": "A page, or with `follow` a stream",
    "content": {STREAM: {"schema": {"type": "string"}}},
}


@router.get("/events", response_model=EventPage, responses=WITH_TOKEN | {200: TWO_FORMS}, summary="What happened")
async def list_events(
    scope: Viewer,
    credentials: Credentials,
    follow: Annotated[Switch, Query(description="Server-sent events from now on, or from `Last-Event-ID`.")] = "0",
    last_event_id: Annotated[str | None, Header(description="Go on after this event.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> EventPage | Response:
    """Oldest first."""
    if not on(follow) or credentials is None:
        return await events.page(scope, limit, cursor)
    start = last_event_id or cursor
    after = await events.newest(scope) if start is None else events.parse_id(start)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    stream = events.follow(scope, credentials.credentials, after)
    return StreamingResponse(stream, media_type=STREAM, headers=headers)
