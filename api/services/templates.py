"""Templates: submissions saved under a name, and run with a new name and overrides."""

import copy
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from api.auth import Scope
from api.services import runs
from astraeus.ledger import tenancy
from astraeus.ledger.core import Tx
from astraeus.ledger.tenancy import TemplateRow
from astraeus.model.change import change
from astraeus.model.errors import NotFound
from astraeus.model.faults import BadSpec, Fault, parse_submission
from astraeus.model.names import canonical, name_fault
from astraeus.model.run import RunView

NAME = ("metadata", "name")


class TemplateView(BaseModel):
    """A saved submission."""

    name: str
    body: dict[str, Any]
    updated_at: datetime
    updated_by: str


class TemplatePage(BaseModel):
    """All templates of the workspace."""

    items: list[TemplateView]
    next_cursor: str | None = None


class TemplateRun(BaseModel):
    """How a template is run: under which name, with which labels added, and which values replaced.

    A path is a JSON pointer (`/spec/priority`) or steps joined by dots (`spec.task_template.env.STEPS`).
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    labels: dict[str, str] = {}
    set: dict[str, Any] = Field(
        default={}, description="Values by their path in the submission; null takes a value away."
    )


async def page(scope: Scope) -> TemplatePage:
    """All templates, by name."""
    async with scope.state.ledger.reading() as tx:
        return TemplatePage(items=[_view(row) for row in await tenancy.list_templates(tx, scope.workspace.id)])


async def get(scope: Scope, name: str) -> TemplateView:
    """One template. Raises `NotFound`."""
    async with scope.state.ledger.reading() as tx:
        return _view(await _row(tx, scope, name))


async def put(scope: Scope, name: str, raw: Any) -> TemplateView:
    """Save a submission under a name; its own name may be absent. Raises `BadSpec`."""
    name = good_name(name)
    if isinstance(raw, dict) and isinstance(raw.get("metadata", {}), dict):
        raw = {**raw, "metadata": {"name": name[:52].rstrip("-"), **raw.get("metadata", {})}}
    parse_submission(raw)
    async with scope.state.ledger.transaction() as tx:
        await tenancy.put_template(tx, scope.workspace.id, name, raw, scope.caller.name)
        return _view(await _row(tx, scope, name))


async def delete(scope: Scope, name: str) -> None:
    """Forget a template. Raises `NotFound`."""
    async with scope.state.ledger.transaction() as tx:
        await _row(tx, scope, name)
        await tenancy.delete_template(tx, scope.workspace.id, canonical(name))


async def run(scope: Scope, name: str, order: TemplateRun, key: str | None) -> tuple[RunView, bool]:
    """Submit a template under a new name."""
    template = await get(scope, name)
    return await runs.submit(scope, filled(template.body, order), key)


def filled(body: dict[str, Any], order: TemplateRun) -> dict[str, Any]:
    """The submission that a template becomes. Raises `BadSpec` for paths that lead nowhere."""
    raw = copy.deepcopy(body)
    metadata = raw.setdefault("metadata", {})
    metadata["labels"] = {**metadata.get("labels", {}), **order.labels}
    faults = []
    for path, value in order.set.items():
        fault = change(raw, path, value)
        if fault:
            faults.append(Fault("/set/" + path.replace("~", "~0").replace("/", "~1"), fault))
    if faults:
        raise BadSpec(faults)
    metadata = raw.get("metadata")
    if isinstance(metadata, dict):
        metadata["name"] = order.name
    return raw


def good_name(name: str) -> str:
    """A canonical name for a template, drive or token. Raises `BadSpec`."""
    name = canonical(name)
    if fault := name_fault(name):
        raise BadSpec([Fault("/name", fault)])
    return name


async def _row(tx: Tx, scope: Scope, name: str) -> TemplateRow:
    wanted = canonical(name)
    row = None if name_fault(wanted) else await tenancy.get_template(tx, scope.workspace.id, wanted)
    if row is None:
        raise NotFound(f"There is no template {wanted!r} in {scope.workspace.path}.")
    return row


def _view(row: TemplateRow) -> TemplateView:
    updated_at = datetime.fromtimestamp(row.updated_at, UTC)
    return TemplateView(name=row.name, body=row.body, updated_at=updated_at, updated_by=row.updated_by)
