"""`/templates`: saved submissions."""

from fastapi import APIRouter, Request, Response

from api.auth import Editor, Viewer
from api.body import read_json, read_model
from api.openapi import TEMPLATE, WITH_BODY, WITH_TOKEN, body, problems, reference
from api.routes.common import BASE, IdempotencyKey, Name, NewName
from api.routes.runs import note_created
from api.services import templates
from api.services.templates import TemplatePage, TemplateRun, TemplateView
from astraeus.model.run import RunView

router = APIRouter(prefix=BASE, tags=["templates"])


@router.get("/templates", responses=WITH_TOKEN, summary="All templates")
async def list_templates(scope: Viewer) -> TemplatePage:
    """By name."""
    return await templates.page(scope)


@router.get("/templates/{name:segment}", responses=WITH_TOKEN, summary="One template")
async def get(scope: Viewer, name: Name) -> TemplateView:
    """As it was saved."""
    return await templates.get(scope, name)


@router.put(
    "/templates/{name:segment}", responses=WITH_BODY, openapi_extra=reference(TEMPLATE), summary="Save a template"
)
async def put(request: Request, scope: Editor, name: NewName) -> TemplateView:
    """Makes or replaces it. The submission's own name is only a stand-in."""
    return await templates.put(scope, name, await read_json(request))


@router.delete(
    "/templates/{name:segment}", status_code=204, responses=WITH_TOKEN, response_class=Response, summary="Forget it"
)
async def delete(scope: Editor, name: Name) -> None:
    """Runs made from it stay."""
    await templates.delete(scope, name)


@router.post(
    "/templates/{name:segment}:run",
    status_code=201,
    responses=WITH_BODY | problems(409),
    openapi_extra=body(TemplateRun),
    summary="Run a template",
)
async def run(request: Request, response: Response, scope: Editor, name: Name, key: IdempotencyKey = None) -> RunView:
    """Under a new name, with labels added and values replaced."""
    order = await read_model(request, TemplateRun)
    view, created = await templates.run(scope, name, order, key)
    note_created(request, response, view, created)
    return view
