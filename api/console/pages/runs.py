"""The list of runs."""

from api.auth import Scope
from api.console import listing
from api.console.pages.run import ORDERS
from api.console.view import Params, Values, View
from api.services import fleet
from astraeus.model.run import RunState

PAGE_ROWS = 50
PAGES_MOST = 100_000
STATES = RunState.__args__  # type: ignore[attr-defined]


async def load(scope: Scope, params: Params) -> Values:
    """One page of the runs that are looked for, and how many there are by state."""
    wanted = _wanted(scope, params)
    async with scope.state.ledger.reading() as tx:
        rows, total = await listing.runs(tx, scope.workspace.id, wanted)
        counts = await listing.counts(tx, scope.workspace.id)
    clusters = [one.name for one in (await fleet.clusters(scope)).items]
    return {
        "rows": rows,
        "total": total,
        "counts": counts,
        "states": STATES,
        "clusters": clusters,
        "from": wanted.offset,
        "size": wanted.limit,
    }


def _wanted(scope: Scope, params: Params) -> listing.Wanted:
    states = params.get("states") or []
    if isinstance(states, str):
        states = states.split(",")
    page = str(params.get("page") or 0)
    return listing.Wanted(
        search=str(params.get("search") or "")[:200],
        by=scope.caller.name if params.get("mine") else None,
        states=[state for state in STATES if state in states],
        cluster=str(params["only"])[:63] if params.get("only") else None,
        limit=PAGE_ROWS,
        offset=PAGE_ROWS * min(int(page[:9]) if page.isascii() and page.isdigit() else 0, PAGES_MOST),
    )


VIEW = View("runs", "Runs", load, lambda scope, _: (f"run:{scope.workspace.id}/",), ORDERS)
