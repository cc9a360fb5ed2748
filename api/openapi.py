"""What the OpenAPI document says beyond the routes' own types: raw bodies and problem documents."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.errors import MEDIA_TYPE, TITLES, Problem
from api.services.belongings import DriveInput, SecretInput, TokenInput
from api.services.orders import MachineOrderInput, OrderInput
from api.services.templates import TemplateRun
from api.services.topology import MeasuredInput, ScanInput
from astraeus.model.agent import SyncRequest
from astraeus.model.spec import Submission

REF = "#/components/schemas/{model}"
BODIES: tuple[type[BaseModel], ...] = (
    Submission,
    TemplateRun,
    DriveInput,
    SecretInput,
    TokenInput,
    OrderInput,
    MachineOrderInput,
    ScanInput,
    MeasuredInput,
    SyncRequest,
    Problem,
)
TEMPLATE = "SubmissionOfTemplate"
RUN_NAME = r"^ *[A-Za-z0-9]([A-Za-z0-9-]{0,50}[A-Za-z0-9])? *$"
"""Names are canonical before first use, so the API takes capitals and outer blanks too."""
PLAIN_PATH = r"^(/[^/\x00]*[^/.\x00][^/\x00]*)+$"

Extra = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]


def body(model: type[BaseModel], required: bool = True) -> Extra:
    """`openapi_extra` of a route that reads its body itself."""
    return reference(model.__name__, required)


def reference(name: str, required: bool = True) -> Extra:
    """The same for a schema by its name."""
    schema = {"$ref": REF.format(model=name)}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def octets() -> Extra:
    """`openapi_extra` of a route that takes any bytes."""
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


def problems(*statuses: int) -> Responses:
    """Responses that are problem documents."""
    schema = {"$ref": REF.format(model=Problem.__name__)}
    return {status: {"description": TITLES[status], "content": {MEDIA_TYPE: {"schema": schema}}} for status in statuses}


WITH_TOKEN = problems(401, 403, 404, 422, 503)
WITH_BODY = WITH_TOKEN | problems(400, 413, 415)


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if not app.openapi_schema:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        _, definitions = models_json_schema([(model, "validation") for model in BODIES], ref_template=REF)
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(definitions["$defs"])
        _as_taken(schemas)
        app.openapi_schema = schema
    return app.openapi_schema


def _as_taken(schemas: dict[str, Any]) -> None:
    """Say what the API takes where that is more, or less, than the model's own bounds say."""
    schemas["Metadata"]["properties"]["name"] = {"type": "string", "pattern": RUN_NAME, "title": "Name"}
    schemas["DriveMount"]["properties"]["mount_path"]["pattern"] = PLAIN_PATH
    schemas["ConfigFile"]["properties"]["mounts"]["items"]["pattern"] = PLAIN_PATH
    # What bounds arguments first is the size of the whole body.
    del schemas["TaskTemplate"]["properties"]["args"]["items"]["maxLength"]
    metadata = {key: value for key, value in schemas["Metadata"].items() if key != "required"}
    properties = {**schemas["Submission"]["properties"], "metadata": metadata}
    schemas[TEMPLATE] = {**schemas["Submission"], "title": TEMPLATE, "properties": properties, "required": ["spec"]}
