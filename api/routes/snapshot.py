"""`/snapshot`: the whole input of a scheduling pass."""

from fastapi import APIRouter, Response

from api.auth import Admin
from api.openapi import WITH_TOKEN
from api.routes.common import BASE, Cluster
from api.services import snapshot

router = APIRouter(prefix=BASE, tags=["machines"])


@router.get(
    "/snapshot", responses=WITH_TOKEN, summary="What the scheduler decides on", response_model=dict[str, object]
)
async def get(scope: Admin, cluster: Cluster = None) -> Response:
    """Machines, what is held, what waits, and reservations: `astra plan` repeats the pass with it."""
    return Response(await snapshot.whole_input(scope, cluster), media_type="application/json")
