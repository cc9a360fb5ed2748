"""What happened in the workspace: to its runs and to the machines of its cluster."""

from sqlalchemy import select

from api.auth import Scope
from api.console import listing
from api.console.view import Params, Values, View, of_workspace
from astraeus.ledger.tables import run

SHOWN = 200
ID_DIGITS = 18


async def load(scope: Scope, params: Params) -> Values:
    """The newest events, or those before `before`, newest first; `more` says that there are older ones."""
    search, before = str(params.get("search") or "")[:200], str(params.get("before") or "")
    first = int(before) if before.isascii() and before.isdigit() and len(before) <= ID_DIGITS else None
    async with scope.state.ledger.reading() as tx:
        found = await listing.workspace_events(tx, scope.workspace.id, search, first, SHOWN + 1)
        uids = {row["run_uid"] for row in found if row["run_uid"]}
        clusters = (await tx.conn.execute(select(*run.c["uid", "cluster"]).where(run.c.uid.in_(uids)))).all()
    on = {row.uid: row.cluster for row in clusters}
    return {
        "rows": [dict(row) | {"cluster": on.get(row["run_uid"])} for row in found[:SHOWN]],
        "more": len(found) > SHOWN,
        "before": first,
    }


VIEW = View("events", "Events", load, of_workspace("event"), {})
