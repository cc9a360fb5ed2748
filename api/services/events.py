"""Events: what happened, as pages and as a stream that can be resumed."""

from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel

from api.auth import Scope, still_good
from api.services.runs import row_named
from astraeus.ledger import events
from astraeus.model.errors import NotFound
from astraeus.model.run import EventView

HEARTBEAT_SECONDS = 10.0
BATCH = 500
OVERLAP = 64
"""Ids re-read behind the newest one sent: on PostgreSQL a lower id may be committed after a higher one."""


class EventPage(BaseModel):
    """Some events, oldest first, and where to go on."""

    items: list[EventView]
    next_cursor: str | None = None


async def page(scope: Scope, limit: int, cursor: str | None, run: str | None = None) -> EventPage:
    """Events of the workspace, or of one run of it."""
    after = parse_id(cursor) if cursor is not None else 0
    async with scope.state.ledger.reading() as tx:
        uid = (await row_named(tx, scope, run)).uid if run is not None else None
        found = await events.list_events(tx, scope.workspace.id, run_uid=uid, after=after, limit=limit + 1)
    more = len(found) > limit
    items = found[:limit]
    return EventPage(items=items, next_cursor=str(items[-1].id) if more else None)


def parse_id(text: str) -> int:
    """An event's id as a client sent it back. Raises `NotFound` for what this API never gave out."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise NotFound(f"{text!r} is not an event's id; leave it out to start from the first one.")
    return int(text)


async def newest(scope: Scope) -> int:
    """The id of the workspace's newest event, 0 when there is none."""
    async with scope.state.ledger.reading() as tx:
        return await events.newest(tx, scope.workspace.id)


async def follow(scope: Scope, token: str, after: int) -> AsyncIterator[bytes]:
    """Server-sent events after the id `after`, for as long as the token is good."""
    with scope.state.hub.listen(f"event:{scope.workspace.id}") as listener:
        sent = {event.id for event in await _since(scope, after - OVERLAP) if event.id <= after}
        yield b": following\n\n"
        while True:
            for event in await _since(scope, after - OVERLAP):
                if event.id > after or event.id not in sent:
                    sent.add(event.id)
                    after = max(after, event.id)
                    yield sse(event)
            sent = {id for id in sent if id > after - OVERLAP}
            heard = await listener.wait(HEARTBEAT_SECONDS)
            if not await still_good(scope, token):
                return
            if not heard:
                yield b": still here\n\n"


async def _since(scope: Scope, after: int) -> list[EventView]:
    found: list[EventView] = []
    async with scope.state.ledger.reading() as tx:
        while True:
            start = found[-1].id if found else max(0, after)
            batch = await events.list_events(tx, scope.workspace.id, run_uid=None, after=start, limit=BATCH)
            found += batch
            if len(batch) < BATCH:
                return found


def sse(event: EventView) -> bytes:
    """One event in the format of server-sent events."""
    fields: dict[str, Any] = {"id": event.id, "event": event.kind, "data": event.model_dump_json()}
    return ("".join(f"{key}: {value}\n" for key, value in fields.items()) + "\n").encode()
