"""A new run: a specification edited as JSON, with its faults and its plan as it is typed."""

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from api.auth import Scope
from api.body import BODY_MAX, decode
from api.console.view import Action, Params, Values, View, of_workspace
from api.errors import TooLarge
from api.services import explain, runs, templates
from astraeus.model.errors import Invalid
from astraeus.model.spec import Submission

EXAMPLE = {
    "metadata": {"name": "hello-gang", "labels": {}},
    "spec": {
        "start": "Gang",
        "on_failure": "RestartJob",
        "task_template": {
            "command": "bash",
            "args": ["-c", "echo worker $RANK of $WORLD_SIZE; sleep 60"],
            "requested_resources": {"gpu_requests": {"count": 16}, "machines": 2},
        },
    },
}
KEY_MOST = 64
PARTS = "parts"


async def load(scope: Scope, params: Params) -> Values:
    """What to begin with: a template's specification, an earlier run's, or an example."""
    start, source = EXAMPLE, "an example"
    if name := str(params.get("template") or ""):
        start, source = (await templates.get(scope, name)).body, f"the template {name}"
    elif name := str(params.get("from") or ""):
        view = await runs.get(scope, name)
        metadata = {"name": view.metadata["name"], "labels": view.metadata["labels"]}
        start, source = {"metadata": metadata, "spec": view.spec}, f"the run {view.metadata['name']}"
    names = [template.name for template in (await templates.page(scope)).items]
    text = json.dumps(start, indent=2, ensure_ascii=False)
    return {"text": text, "source": source, "templates": names, "schema": _schema()}


def _schema() -> dict[str, Any]:
    """The specification's JSON schema, for completion."""
    _, schema = models_json_schema([(Submission, "validation")], ref_template="#/$defs/{model}")
    return schema


def _read(params: Params, values: Values) -> Any:
    """The JSON that was typed, with the parts sent before. Raises with its place what is not JSON."""
    id, begun = params.pop(PARTS, ("", ""))
    text = (begun if id == values.get("id") else "") + str(values.get("text") or "")
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > BODY_MAX:
        raise TooLarge(f"The specification has {len(data)} bytes; at most {BODY_MAX} are taken.")
    return decode(data)


async def _part(_: Scope, params: Params, values: Values) -> None:
    """The beginning of a text too long for one message."""
    id, begun = params.get(PARTS, ("", ""))
    text = (begun if id == values.get("id") else "") + str(values.get("text") or "")
    if len(text) > BODY_MAX:
        raise TooLarge(f"The specification is too long; at most {BODY_MAX} bytes are taken.")
    params[PARTS] = (values.get("id"), text)


async def _plan(scope: Scope, params: Params, values: Values) -> Any:
    """What would happen now; faults where there are any."""
    plan = await explain.plan(scope, _read(params, values), _cluster(values))
    return plan.model_dump(mode="json")


async def _start(scope: Scope, params: Params, values: Values) -> Any:
    """Submit it. The key makes a repeated press of the button the same run."""
    key = str(values.get("key") or "")[:KEY_MOST]
    view, _ = await runs.submit(scope, _read(params, values), f"console-{key}" if key else None, _cluster(values))
    return {"name": view.metadata["name"], "cluster": view.cluster}


async def _save(scope: Scope, params: Params, values: Values) -> Any:
    """Save it as a template."""
    raw = _read(params, values)
    name = str(values.get("template") or "").strip()
    if not name:
        raise Invalid("Give the template a name.")
    return (await templates.put(scope, name, raw)).name


def _cluster(values: Values) -> str | None:
    return str(values["cluster"]) if values.get("cluster") else None


VIEW = View(
    "new",
    "New run",
    load,
    of_workspace("template"),
    {
        "part": Action("viewer", _part),
        "plan": Action("viewer", _plan),
        "start": Action("editor", _start),
        "save": Action("editor", _save),
    },
)
