"""One run: where it is and why, its gang, attempts and events, and the orders it takes."""

from typing import Any
from urllib.parse import quote

from api.auth import Scope
from api.console import listing
from api.console.view import Action, Do, Params, Values, View, model
from api.services import explain, runs
from api.services.orders import OrderInput
from astraeus.ledger import runs as ledger_runs
from astraeus.ledger import views
from astraeus.ledger.core import Tx
from astraeus.ledger.runs import RunRow
from astraeus.model.budget import EARN_SECONDS
from astraeus.model.errors import NotFound
from astraeus.model.names import canonical
from astraeus.model.run import RunView

EVENTS = 200
NAMESAKES = 20
SHOWN_TEXT = 4096


async def load(scope: Scope, params: Params) -> Values:
    """Everything of one run from one state of the ledger. Raises `NotFound`."""
    async with scope.state.ledger.reading() as tx:
        row = await _row(tx, scope, params)
        latest = await ledger_runs.find(tx, scope.workspace.id, row.name)
        (view,) = await views.run_views(tx, [row])
        attempts = await views.attempt_views(tx, row.uid)
        events = await listing.latest_events(tx, row.uid, EVENTS)
        namesakes = await listing.namesakes(tx, scope.workspace.id, row.uid, row.name, NAMESAKES)
    waits = row.state == "Pending" or (row.is_parent and not row.final)
    explained = await explain.explain(scope, row.uid) if waits else None
    return {
        "run": view.model_dump(mode="json") | {"spec": shortened(view.spec)},
        "gpus": listing.gpus_of(view.spec),
        "priority": row.priority,
        "alone": row.is_parent,
        "by": row.submitted_by,
        "latest": latest is not None and latest.uid == row.uid,
        "namesakes": namesakes,
        "deleting": row.delete_asked_at is not None,
        "earns_every": EARN_SECONDS,
        "attempts": [attempt.model_dump(mode="json") for attempt in attempts],
        "events": events,
        "explained": explained.model_dump(mode="json") if explained else None,
        "temporal": _temporal(scope, row),
    }


async def _row(tx: Tx, scope: Scope, params: Params) -> RunRow:
    """The run of the address; `uid` picks an older one of the same name."""
    row = await runs.row_named(tx, scope, str(params.get("uid") or params["run"]))
    if row.cluster != canonical(params["cluster"]):
        raise NotFound(f"{row.name} is a run of {row.cluster}, not of {params['cluster']}.")
    return row


def shortened(spec: Any) -> Any:
    """A specification to be read: long files are cut, since all of them would be sent at each change."""
    if isinstance(spec, dict):
        return {key: shortened(value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [shortened(value) for value in spec]
    if isinstance(spec, str) and len(spec) > SHOWN_TEXT:
        return f"{spec[:SHOWN_TEXT]}… ({len(spec) - SHOWN_TEXT} more characters)"
    return spec


def _temporal(scope: Scope, row: RunRow) -> str | None:
    if not scope.state.temporal_ui:
        return None
    namespace = quote(scope.state.temporal_namespace, safe="")
    workflows = f"{scope.state.temporal_ui.rstrip('/')}/namespaces/{namespace}/workflows"
    if row.is_parent:
        # Workers that start one by one have a workflow each; the number of each is at the end of its id.
        known = f"WorkflowId STARTS_WITH '{ledger_runs.workflow_id(row, scope.workspace)[:-5]}w'"
        return f"{workflows}?query={quote(known, safe='')}"
    return f"{workflows}/{quote(ledger_runs.workflow_id(row, scope.workspace), safe='')}"


def _order(kind: str) -> Do:
    async def give(scope: Scope, params: Params, values: Values) -> Any:
        order = model(OrderInput, {"why": values.get("why") or None})
        view: RunView = await runs.order(scope, str(values.get("run")), kind, order.why)
        return view.state

    return give


async def _delete(scope: Scope, params: Params, values: Values) -> Any:
    view = await runs.delete(scope, str(values.get("run")))
    return view.state if view else None


async def _spec(scope: Scope, params: Params, _: Values) -> Any:
    async with scope.state.ledger.reading() as tx:
        return (await _row(tx, scope, params)).spec


def _topics(scope: Scope, _: Params) -> tuple[str, ...]:
    return (f"run:{scope.workspace.id}/",)


ORDERS = {kind: Action("editor", _order(kind)) for kind in runs.ORDERS} | {"delete": Action("editor", _delete)}
VIEW = View("run", "Run", load, _topics, ORDERS | {"spec": Action("viewer", _spec)})
