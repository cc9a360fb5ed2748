"""Templates: saved specifications, to be started under a name."""

from typing import Any

from api.auth import Scope
from api.console.listing import gpus_of
from api.console.pages.run import shortened
from api.console.view import Action, Params, Values, View, model, of_workspace, seconds
from api.services import templates
from api.services.templates import TemplateRun


async def load(scope: Scope, params: Params) -> Values:
    """All templates, by name."""
    found = (await templates.page(scope)).items
    return {
        "rows": [
            {
                "name": one.name,
                "by": one.updated_by,
                "at": seconds(one.updated_at),
                "gpus": gpus_of(one.body.get("spec", {})),
                "body": shortened(one.body),
            }
            for one in found
        ]
    }


async def _run(scope: Scope, params: Params, values: Values) -> Any:
    order = model(TemplateRun, {"name": str(values.get("name") or "")})
    view, _ = await templates.run(scope, str(values.get("template")), order, None)
    return {"name": view.metadata["name"], "cluster": view.cluster}


async def _delete(scope: Scope, params: Params, values: Values) -> Any:
    await templates.delete(scope, str(values.get("name")))


VIEW = View(
    "templates",
    "Templates",
    load,
    of_workspace("template"),
    {"run": Action("editor", _run), "delete": Action("editor", _delete)},
)
