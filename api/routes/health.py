"""Outside the workspaces: health, readiness and metrics."""

import asyncio

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from api.auth import State
from api.figures import figures
from api.openapi import problems
from api.state import AppState
from astraeus.ledger import migrate
from astraeus.model.errors import Away

router = APIRouter(tags=["health"])

TEMPORAL_SECONDS = 1.0
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Health(BaseModel):
    """The process answers."""

    status: str = "ok"


class Readiness(BaseModel):
    """The process can take runs; `temporal` only informs, since runs are taken without it too."""

    status: str = "ready"
    ledger: str
    temporal: str


@router.get("/healthz", summary="The process answers")
async def healthz() -> Health:
    """Says nothing about the ledger."""
    return Health()


@router.get("/readyz", responses=problems(503), summary="The process can take runs")
async def readyz(state: State) -> Readiness:
    """The ledger answers and its schema is the one this version needs."""
    if not await migrate.current(state.ledger):
        raise Away("The ledger's schema is not the one this version needs; start one process to bring it up to date.")
    return Readiness(ledger=state.ledger.dialect, temporal=await _temporal(state))


async def _temporal(state: AppState) -> str:
    if state.temporal_up is None:
        return "not asked"
    try:
        up = await asyncio.wait_for(state.temporal_up(), TEMPORAL_SECONDS)
    except Exception:
        up = False
    return "up" if up else "away"


@router.get("/metrics", response_class=PlainTextResponse, responses=problems(503), summary="For Prometheus")
async def metrics(state: State) -> Response:
    """Requests as they were served, and what the ledger holds now."""
    async with state.ledger.reading() as tx:
        state.metrics.show(await figures(tx))
    return Response(state.metrics.text(), media_type=PROMETHEUS)
