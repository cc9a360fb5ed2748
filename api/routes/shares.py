"""`/shares`, `/share`: quotas and fair shares of workspaces on a cluster."""

from fastapi import APIRouter, Request

from api.auth import Admin, Viewer
from api.body import read_model
from api.openapi import WITH_BODY, WITH_TOKEN, body
from api.routes.common import BASE, Cluster
from api.services import shares
from api.services.shares import ShareInput, SharePage, ShareView

router = APIRouter(prefix=BASE, tags=["quotas and shares"])


@router.get("/shares", responses=WITH_TOKEN, summary="Quotas, shares and use of the workspaces")
async def page(scope: Viewer, cluster: Cluster = None) -> SharePage:
    """By name."""
    return await shares.page(scope, cluster)


@router.patch("/share", responses=WITH_BODY, openapi_extra=body(ShareInput), summary="Set the workspace's due")
async def change(request: Request, scope: Admin, cluster: Cluster = None) -> ShareView:
    """By the token of an operator, which is not limited to a workspace. Null takes it away, what is absent stays."""
    return await shares.change(scope, cluster, await read_model(request, ShareInput))
