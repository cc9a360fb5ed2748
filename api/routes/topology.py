"""`/topology`: the network, its faults, scans of it, and what was measured on it."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse

from api.auth import Admin, Editor, Viewer
from api.body import read_model
from api.openapi import WITH_BODY, WITH_TOKEN, body, problems
from api.routes.common import BASE, Cluster, Switch, on
from api.services import topology
from api.services.topology import (
    SCAN_MOST,
    ExportFormat,
    FindingPage,
    MeasuredInput,
    MeasuredPage,
    ScanInput,
    ScanView,
    TopologyView,
)
from astraeus.ledger.measured import MeasuredView

router = APIRouter(prefix=BASE, tags=["topology"])

Format = Annotated[ExportFormat, Path(description="What to write.")]
Closed = Annotated[Switch, Query(description="Those closed last instead of the open ones.")]


@router.get("/topology", responses=WITH_TOKEN, summary="The network as a tree")
async def show(scope: Viewer, cluster: Cluster = None) -> TopologyView:
    """Fabrics, spine groups, leaf groups and machines, with who holds what; and the fabrics as they were scanned."""
    return await topology.topology(scope, cluster)


@router.delete(
    "/topology", status_code=204, responses=WITH_TOKEN, response_class=Response, summary="Forget all scans and files"
)
async def forget(scope: Admin, cluster: Cluster = None) -> None:
    """The machines' own labels count again."""
    await topology.forget(scope, cluster)


@router.get("/topology/findings", responses=WITH_TOKEN, summary="Faults of the network")
async def findings(scope: Viewer, cluster: Cluster = None, closed: Closed = "false") -> FindingPage:
    """Where, what, what it costs, on which runs, and what to do."""
    return await topology.findings(scope, cluster, on(closed))


@router.post(
    "/topology/scan",
    responses=WITH_BODY | problems(409),
    openapi_extra=body(ScanInput),
    summary="Take the outputs of the network's tools over",
)
async def scan(request: Request, scope: Admin, cluster: Cluster = None) -> ScanView:
    """Applied as one change; held where a fabric lost more than a fifth of its links since its last scan."""
    return await topology.scan(scope, await read_model(request, ScanInput, most=SCAN_MOST), cluster)


@router.post("/topology/held:apply", responses=WITH_TOKEN | problems(409), summary="Apply the scan that is held")
async def apply_held(scope: Admin, cluster: Cluster = None) -> ScanView:
    """However much is gone."""
    return await topology.apply_held(scope, cluster)


@router.post(
    "/topology/held:discard",
    status_code=204,
    responses=WITH_TOKEN,
    response_class=Response,
    summary="Drop the scan that is held",
)
async def discard_held(scope: Admin, cluster: Cluster = None) -> None:
    """The last scan that was applied stays."""
    await topology.discard_held(scope, cluster)


@router.get("/topology/measured", responses=WITH_TOKEN, summary="Measured bandwidths")
async def measured(scope: Viewer, cluster: Cluster = None) -> MeasuredPage:
    """The median for each rung and GPU model, which estimates take."""
    return await topology.measured_page(scope, cluster)


@router.post(
    "/topology/measured",
    status_code=201,
    responses=WITH_BODY | problems(409),
    openapi_extra=body(MeasuredInput),
    summary="Add a measured bandwidth",
)
async def add_measured(request: Request, scope: Editor, cluster: Cluster = None) -> MeasuredView:
    """Of a run, or of a rung; estimates of later placements take the median."""
    return await topology.add_measured(scope, await read_model(request, MeasuredInput), cluster)


@router.get(
    "/topology/export/{kind}",
    responses=WITH_TOKEN,
    response_class=PlainTextResponse,
    summary="The network for another scheduler",
)
async def export(scope: Viewer, kind: Format, cluster: Cluster = None) -> PlainTextResponse:
    """Slurm's topology.conf or topology.yaml, or Kueue's topology and node labels."""
    return PlainTextResponse(await topology.export(scope, kind, cluster))
