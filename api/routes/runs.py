"""`/runs`: submit, list, look, order, delete."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.auth import Editor, Viewer
from api.body import read_json, read_model
from api.openapi import WITH_BODY, WITH_TOKEN, body, problems
from api.routes.common import BASE, PLAIN, Cluster, Cursor, IdempotencyKey, Limit, Run
from api.services import events, explain, runs
from api.services.events import EventPage
from api.services.explain import Explanation, PlanView
from api.services.orders import OrderInput
from api.services.runs import AttemptPage, Filters, RunPage
from astraeus.model.errors import Invalid
from astraeus.model.run import RunState, RunView
from astraeus.model.spec import Submission

router = APIRouter(prefix=BASE, tags=["runs"])

Order = Literal["cancel", "preempt", "restart", "hold", "release"]


@router.post(
    "/runs",
    status_code=201,
    responses=WITH_BODY | problems(409),
    openapi_extra=body(Submission),
    summary="Submit a run",
)
async def submit(
    request: Request, response: Response, scope: Editor, key: IdempotencyKey = None, cluster: Cluster = None
) -> RunView:
    """Answered only when the run is stored; from then on it is not lost."""
    view, created = await runs.submit(scope, await read_json(request), key, cluster)
    note_created(request, response, view, created)
    return view


def note_created(request: Request, response: Response, view: RunView, created: bool) -> None:
    """Say where the run is, and whether an earlier request made it."""
    org, workspace = request.path_params["org"], request.path_params["workspace"]
    response.headers["Location"] = f"/api/o/{org}/w/{workspace}/runs/{view.metadata['name']}"
    if not created:
        response.headers["Idempotent-Replayed"] = "true"


@router.post("/runs:plan", responses=WITH_BODY, openapi_extra=body(Submission), summary="What would happen now")
async def plan(request: Request, scope: Viewer, cluster: Cluster = None) -> PlanView:
    """Nothing is written."""
    return await explain.plan(scope, await read_json(request), cluster)


@router.get("/runs", responses=WITH_TOKEN, summary="List runs")
async def list_runs(
    scope: Viewer,
    state: Annotated[list[RunState], Query(description="Any of these.")] = [],  # noqa: B006
    label: Annotated[list[str], Query(description="`key=value`; all of them.")] = [],  # noqa: B006
    cluster: Cluster = None,
    name: Annotated[
        str | None, Query(max_length=63, pattern=PLAIN, description="Every run that had this name.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> RunPage:
    """In the order of submission."""
    return await runs.page(scope, Filters(state, _labels(label), cluster, name, limit, cursor))


def _labels(texts: list[str]) -> dict[str, str]:
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or "\0" in text:
            raise Invalid(f"label {text!r} is not of the form key=value.")
        labels[key] = value
    return labels


@router.get("/runs/{name:segment}", responses=WITH_TOKEN, summary="One run")
async def get(scope: Viewer, name: Run) -> RunView:
    """The live run of that name, else the latest; by its uid, that very run."""
    return await runs.get(scope, name)


@router.delete(
    "/runs/{name:segment}",
    status_code=202,
    response_model=RunView,
    responses=WITH_TOKEN | {204: {"description": "It was final, and is hidden now"}},
    summary="Stop, then hide",
)
async def delete(scope: Editor, name: Run) -> RunView | Response:
    """The name is free at once. Valid in every state, and twice."""
    view = await runs.delete(scope, name)
    return Response(status_code=204) if view is None else view


def _order(kind: Order, summary: str) -> None:
    async def give(request: Request, scope: Editor, name: Run) -> RunView:
        order = await read_model(request, OrderInput, optional=True)
        return await runs.order(scope, name, kind, order.why)

    router.add_api_route(
        f"/runs/{{name:segment}}:{kind}",
        give,
        methods=["POST"],
        status_code=202,
        responses=WITH_BODY | problems(409),
        openapi_extra=body(OrderInput, required=False),
        summary=summary,
        description="Valid in every state that is not final, and twice.",
        name=kind,
    )


_order("cancel", "Stop for good")
_order("preempt", "Stop and wait to run again, not charged")
_order("restart", "Stop and start again, not charged")
_order("hold", "Do not place until released")
_order("release", "Take a hold back")


@router.get("/runs/{name:segment}/events", responses=WITH_TOKEN, summary="What happened to a run")
async def run_events(scope: Viewer, name: Run, limit: Limit = 100, cursor: Cursor = None) -> EventPage:
    """Oldest first."""
    return await events.page(scope, limit, cursor, name)


@router.get("/runs/{name:segment}/attempts", responses=WITH_TOKEN, summary="Every attempt of a run")
async def attempts(scope: Viewer, name: Run) -> AttemptPage:
    """Where each ran, how it ended, and whether it was charged."""
    return await runs.attempts(scope, name)


@router.get("/runs/{name:segment}/explain", responses=WITH_TOKEN, summary="Why a run is where it is")
async def explain_run(scope: Viewer, name: Run) -> Explanation:
    """Its reason and, while it waits, all blockers, its place in the queue and what would unblock it."""
    return await explain.explain(scope, name)
