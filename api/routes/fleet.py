"""`/machines`, `/clusters`: what operators see and do."""

from fastapi import APIRouter, Request

from api.auth import Admin, Viewer
from api.body import read_model
from api.openapi import WITH_BODY, WITH_TOKEN, body, problems
from api.routes.common import BASE, Cluster, Cursor, Limit, Name
from api.services import fleet
from api.services.fleet import ClusterPage, MachineOrder, MachinePage
from api.services.orders import MachineOrderInput
from astraeus.model.machine import MachineView

router = APIRouter(prefix=BASE, tags=["machines"])


@router.get("/machines", responses=WITH_TOKEN, summary="Machines of a cluster")
async def list_machines(
    scope: Viewer, cluster: Cluster = None, limit: Limit = 100, cursor: Cursor = None
) -> MachinePage:
    """By name."""
    return await fleet.page(scope, cluster, limit, cursor)


@router.get("/machines/{name:segment}", responses=WITH_TOKEN, summary="One machine")
async def get(scope: Viewer, name: Name, cluster: Cluster = None) -> MachineView:
    """Its state, ports, labels and who holds its GPUs."""
    return await fleet.get(scope, name, cluster)


def _order(kind: MachineOrder, summary: str) -> None:
    async def give(request: Request, scope: Admin, name: Name, cluster: Cluster = None) -> MachineView:
        order = await read_model(request, MachineOrderInput, optional=True)
        return await fleet.order(scope, name, kind, order.reason, cluster)

    router.add_api_route(
        f"/machines/{{name:segment}}:{kind}",
        give,
        methods=["POST"],
        responses=WITH_BODY | problems(409) if kind == "lost" else WITH_BODY,
        openapi_extra=body(MachineOrderInput, required=False),
        summary=summary,
        description="May be repeated.",
        name=f"{kind}_machine",
    )


_order("drain", "No new work, and what runs there moves, not charged")
_order("cordon", "No new work; what runs there stays")
_order("return", "Back to work")
_order("lost", "An operator's word that a silent machine is lost, whatever the watch holds back")


@router.get("/clusters", responses=WITH_TOKEN, summary="All clusters")
async def clusters(scope: Viewer) -> ClusterPage:
    """And which one runs go to when they name none."""
    return await fleet.clusters(scope)
