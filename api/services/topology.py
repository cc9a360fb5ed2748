"""The network: the tree, findings, scans that are taken or held, measured bandwidths, exports."""

import asyncio
import base64
import binascii
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.auth import Scope
from api.services.runs import known_cluster
from api.topology import ClusterTree, tree
from astraeus.ledger import findings as ledger_findings
from astraeus.ledger import machines, measured
from astraeus.ledger import topology as ledger_topology
from astraeus.ledger.core import Tx
from astraeus.ledger.findings import FindingView
from astraeus.ledger.measured import MeasuredView
from astraeus.ledger.topology import Outcome, State
from astraeus.model.errors import Invalid, NotFound
from astraeus.model.names import canonical
from astraeus.topology import exports, sites, tools
from astraeus.topology.derive import Derived, derive
from astraeus.topology.scan import Scan
from astraeus.topology.sites import Site

MACHINES_MOST = 100_000
SCAN_MOST = 64 * 1024 * 1024
TOOLS: tuple[tools.Tool, ...] = ("ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo")

ToolName = Literal["ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "file"]
RungName = Literal[
    "machine", "nvlink", "leaf", "fabric_rack", "fabric", "roce_leaf", "roce", "ethernet_rack", "ethernet"
]
ExportFormat = Literal["slurm", "slurm-yaml", "slurm-blocks", "kueue"]
Plain = Annotated[str, Field(max_length=128, pattern=r"^[^\x00]*$")]


class Input(BaseModel):
    """A body; unknown fields are faults."""

    model_config = ConfigDict(extra="forbid", strict=True)


class OutputInput(Input):
    """What a tool printed, or a file: as text, or gzipped in base64. Without `tool` the text tells it."""

    tool: ToolName | None = None
    text: str | None = None
    gzip: str | None = None


class ScanInput(Input):
    """A scan of one or more fabrics. `force` applies it even if many links are gone."""

    outputs: Annotated[list[OutputInput], Field(min_length=1, max_length=64)]
    force: bool = False


class MeasuredInput(Input):
    """A measured bus bandwidth, in GB/s: of a run, or of a rung with the GPU model and the ports that were used."""

    busbw_gbps: Annotated[float, Field(gt=0, le=100_000)]
    run: Plain | None = None
    rung: RungName | None = None
    gpu_model: Plain | None = None
    rails: Annotated[int, Field(ge=1, le=64)] | None = None
    gbps: Annotated[float, Field(gt=0, le=10_000)] | None = None


class LeafGroupView(BaseModel):
    """A leaf group as it was scanned. Oversubscription is Gb/s down over Gb/s up: as built, and as it is."""

    name: str
    spine: str
    switches: list[str]
    rails: list[int] | None = None
    machines: int
    oversubscription: float | None = None
    oversubscription_live: float | None = None


class FabricView(BaseModel):
    """A fabric as it was last scanned. `managers` are all its subnet managers ever seen, `other_hosts` no machines."""

    name: str
    scanned_at: datetime
    managers: list[str]
    switches: int
    adapters: int
    nameless: int
    aggregation_nodes: int
    rail_optimised: bool
    other_hosts: list[str]
    leaf_groups: list[LeafGroupView]


class HeldView(BaseModel):
    """A scan that waits for an operator to apply or discard it."""

    id: str
    at: datetime
    actor: str
    why: str


class TopologyView(BaseModel):
    """The network of every cluster asked for, the fabrics as they were scanned, and the scan that is held."""

    clusters: list[ClusterTree]
    fabrics: list[FabricView] = []
    held: HeldView | None = None
    measured: list[MeasuredView] = []


class FindingPage(BaseModel):
    """All findings."""

    items: list[FindingView]
    next_cursor: str | None = None


class MeasuredPage(BaseModel):
    """What stands for each rung and GPU model."""

    items: list[MeasuredView]
    next_cursor: str | None = None


class ProblemView(BaseModel):
    """A line that could not be read."""

    source: str
    line: int
    text: str


class FindingCounts(BaseModel):
    """What a scan did to the findings."""

    opened: int
    stayed: int
    closed: int


class ScanView(BaseModel):
    """What became of a scan. `runs` are those whose network changed; `problems` are the first of `unread` lines."""

    id: str
    state: Literal["applied", "held"]
    why: str | None = None
    fabrics: list[str]
    machines: int
    machines_changed: int
    findings: FindingCounts
    runs: list[str]
    unread: int
    problems: list[ProblemView]


@dataclass(frozen=True)
class _Read:
    """The outputs of an upload, read."""

    scan: Scan
    site: Site


async def topology(scope: Scope, cluster: str | None) -> TopologyView:
    """The network as a tree, with who holds what, and what the last scans found."""
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        found, _ = await machines.machine_views(tx, cluster, MACHINES_MOST, None)
        fabrics = await ledger_topology.fabrics(tx, cluster)
        held = await ledger_topology.held(tx, cluster)
        standing = await measured.views(tx, cluster)
    return TopologyView(
        clusters=[tree(cluster, found)],
        fabrics=[FabricView.model_validate(fabric) for fabric in fabrics],
        held=None if held is None else HeldView(id=held.id, at=_time(held.at), actor=held.actor, why=held.why or ""),
        measured=standing,
    )


async def findings(scope: Scope, cluster: str | None, closed: bool = False) -> FindingPage:
    """Faults of the network, the worst first; or those closed last."""
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        return FindingPage(items=await ledger_findings.finding_views(tx, cluster, closed))


async def scan(scope: Scope, body: ScanInput, cluster: str | None) -> ScanView:
    """Take the outputs of the network's tools over, as one change, or hold them where too much is gone."""
    packed = zlib.compress(body.model_dump_json().encode())
    return await _taken(scope, body, packed, cluster)


async def apply_held(scope: Scope, cluster: str | None) -> ScanView:
    """Apply the scan that is held."""
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        held = await ledger_topology.held(tx, cluster)
    if held is None or held.body is None:
        raise NotFound(f"No scan of {cluster} is held.")
    body = ScanInput.model_validate(json.loads(zlib.decompress(held.body)))
    return await _taken(scope, body.model_copy(update={"force": True}), b"", cluster, at=held.at)


async def discard_held(scope: Scope, cluster: str | None) -> None:
    """Drop the scan that is held."""
    async with scope.state.ledger.transaction() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        await ledger_topology.discard(tx, cluster, scope.caller.name)
    await scope.state.deliver(tx)


async def forget(scope: Scope, cluster: str | None) -> None:
    """Forget what scans and files said; the machines' own labels count again."""
    async with scope.state.ledger.transaction() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        await ledger_topology.forget(tx, cluster, scope.caller.name)
    await scope.state.deliver(tx)


async def _taken(
    scope: Scope, body: ScanInput, packed: bytes, cluster: str | None, at: float | None = None
) -> ScanView:
    # Reading a large fabric takes a second, in which the API answers others.
    read = await asyncio.to_thread(_read, body.outputs)
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        before = await ledger_topology.read_state(tx, cluster)
    derived = await asyncio.to_thread(
        derive, read.scan, before.inventory, before.known, before.at if at is None else at
    )
    async with scope.state.ledger.transaction() as tx:
        outcome = await _apply(tx, cluster, before, derived, read.site, scope.caller.name, packed, body.force)
    await scope.state.deliver(tx)
    return _scan_view(outcome, derived, read)


async def _apply(
    tx: Tx, cluster: str, before: State, derived: Derived, site: Site, actor: str, packed: bytes, force: bool
) -> Outcome:
    return await ledger_topology.apply(tx, cluster, before, derived, site, actor, packed, force)


def _read(outputs: Sequence[OutputInput]) -> _Read:
    """Raises Invalid where an output is of no known kind."""
    scans: list[tuple[tools.Tool, Scan]] = []
    site = Site()
    for number, output in enumerate(outputs):
        text = _text(output, number)
        tool = output.tool or tools.sniff(text)
        if tool == "file" or (tool is None and sites.looks_like(text)):
            _add(site, sites.parse(text))
        elif tool is None:
            raise Invalid(
                f"output {number} is of no tool that is known: give what {', '.join(TOOLS)} print, "
                "a topology.conf, or a topology file"
            )
        else:
            scans.append((tool, tools.parse(text, tool)))
    return _Read(tools.together(scans), site)


def _text(output: OutputInput, number: int) -> str:
    if (output.text is None) == (output.gzip is None):
        raise Invalid(f"output {number} needs either text or gzip")
    if output.text is not None:
        return output.text
    try:
        return tools.decode(base64.b64decode(output.gzip or "", validate=True))
    except binascii.Error as error:
        raise Invalid(f"the gzip of output {number} is not base64") from error


def _add(site: Site, more: Site) -> None:
    for name, labels in more.places.items():
        site.put(name, labels)
    site.problems.extend(more.problems)


def _scan_view(outcome: Outcome, derived: Derived, read: _Read) -> ScanView:
    problems = [ProblemView(source=one.source, line=one.line, text=one.text) for one in derived.problems]
    problems += [ProblemView(source="file", line=0, text=text[:200]) for text in read.site.problems[:100]]
    return ScanView(
        id=outcome.id,
        state="held" if outcome.state == "held" else "applied",
        why=outcome.why,
        fabrics=[fabric.known.name for fabric in derived.fabrics],
        machines=len(derived.places.keys() | read.site.places.keys()),
        machines_changed=outcome.machines_changed,
        findings=FindingCounts(opened=outcome.news.opened, stayed=outcome.news.stayed, closed=outcome.news.closed),
        runs=list(outcome.runs),
        unread=derived.unread + len(read.site.problems),
        problems=problems,
    )


async def add_measured(scope: Scope, body: MeasuredInput, cluster: str | None) -> MeasuredView:
    """Take a measured bandwidth; the median of all stands for its rung and GPU model."""
    async with scope.state.ledger.transaction() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        if body.run is not None:
            cluster, found = await measured.of_run(tx, scope.workspace.id, canonical(body.run), body.busbw_gbps)
        elif body.rung is None or not body.gpu_model:
            raise Invalid("name the run that measured it, or the rung and the gpu_model it was measured on")
        else:
            found = measured.measurement(body.rung, body.gpu_model, body.busbw_gbps, body.rails, body.gbps)
        standing = await measured.add(tx, cluster, scope.caller.name, found)
    await scope.state.deliver(tx)
    return standing


async def measured_page(scope: Scope, cluster: str | None) -> MeasuredPage:
    """What stands for each rung and GPU model."""
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        return MeasuredPage(items=await measured.views(tx, cluster))


async def export(scope: Scope, kind: ExportFormat, cluster: str | None) -> str:
    """The network as another scheduler reads it."""
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        found: list[Any]
        found, _ = await machines.machine_views(tx, cluster, MACHINES_MOST, None)
    if kind == "kueue":
        return exports.kueue(found)
    if kind == "slurm-yaml":
        return exports.slurm_yaml(found)
    return exports.slurm_blocks(found) if kind == "slurm-blocks" else exports.slurm_conf(found)


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
