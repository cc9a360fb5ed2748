"""Findings about error counters, by how fast they grow."""

from collections.abc import Iterator, Mapping

from astraeus.topology.counting import (
    ALLOWED,
    BENIGN,
    CONGESTION,
    HOUR,
    OTHERS_ALLOWED,
    Growth,
    Reading,
    growth,
    suspicious,
)
from astraeus.topology.findings import Finding, Scene, port_name
from astraeus.topology.graph import Graph, Nic
from astraeus.topology.scan import End, Scan

MINUTE = 60.0


def reading(scan: Scan, graph: Graph, at: float) -> Reading:
    """What the ports of a fabric have counted, without what is no fault."""
    own = {nic.guid for nic in graph.adapters()}
    ports = {}
    for end, found in scan.counters.items():
        told = {name: value for name, value in found.items() if name not in BENIGN and value}
        if told and (end[0] in graph.switches or end[0] in own):
            ports[end] = told
    return Reading(at, ports)


def counters(scene: Scene) -> Iterator[Finding]:
    """Ports whose errors grow, or stand without anybody knowing since when; and those that throw packets away."""
    if not scene.scan.counted or not scene.readings:
        return
    at = {(nic.switch, nic.switch_port): nic for nic in scene.shape.graph.nics}
    own = {(nic.guid, nic.port): nic for nic in scene.shape.graph.nics}
    for end in sorted(scene.readings[-1].ports):
        nic = at.get(end) or own.get(end)
        if end[0] not in scene.shape.graph.switches and nic is None:
            continue
        bad = {name: one for name, one in growth(scene.readings, end).items() if suspicious(name, one)}
        for kind in ("errors", "congested"):
            told = {name: one for name, one in bad.items() if (name in CONGESTION) == (kind == "congested")}
            if told:
                yield _counted(scene, kind, end, nic, told)


def _counted(scene: Scene, kind: str, end: End, nic: Nic | None, found: Mapping[str, Growth]) -> Finding:
    on_switch = end[0] in scene.shape.graph.switches
    whose = f" (to {port_name(nic)})" if nic and on_switch else ""
    lossy = kind == "errors"
    return Finding(
        kind=kind,
        severity="warning" if lossy else "info",
        fabric=scene.names.fabric,
        place=scene.at(*end) if on_switch else port_name(nic) if nic else "",
        message=f"counted {', '.join(_said(name, one) for name, one in found.items())}{whose}",
        cost="packets are sent again; the link may fail soon" if lossy else "packets waited here and were dropped",
        advice=_advice(found) if lossy else "Look for uplinks that are down, and whether adaptive routing is on",
        machines=(nic.host,) if nic else (),
        detail={
            "counters": {name: value for name, value in scene.scan.counters[end].items() if _of_kind(name, lossy)},
            "grew": {name: one.grew for name, one in found.items() if one.grew is not None},
            "seconds": round(max(one.seconds for one in found.values())),
            "allowed_per_hour": {name: ALLOWED.get(name, OTHERS_ALLOWED) for name in found},
        },
    )


def _of_kind(name: str, lossy: bool) -> bool:
    return name not in BENIGN | CONGESTION if lossy else name in CONGESTION


def _said(name: str, one: Growth) -> str:
    if one.full and one.grew is None:
        return f"{name} {one.total}, where it stops"
    if one.grew is None:
        return f"{name} {one.total}"
    allowed = ALLOWED.get(name, OTHERS_ALLOWED)
    limit = f", more than {allowed:g} an hour" if allowed else ""
    return f"{name} {one.grew} in {_spoken(one.seconds)}{limit}"


def _spoken(seconds: float) -> str:
    return f"{seconds / HOUR:.1f} hours" if seconds >= 2 * HOUR else f"{seconds / MINUTE:.0f} minutes"


def _advice(found: Mapping[str, Growth]) -> str:
    if any(one.grew for one in found.values()):
        return "Clean or replace the cable, then the port; a machine that was restarted counts one link that went down"
    if any(one.full for one in found.values()):
        return "Clear the counters (ibclearerrors): a counter that stands at its end tells nothing"
    return "The next scan tells whether they grow; if they do, replace the cable"
