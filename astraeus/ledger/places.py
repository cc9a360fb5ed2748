"""Where machines are by the last scan or file, over what their own agents say. Everybody reads both through here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sqlalchemy import Text, and_, cast

from astraeus.ledger.tables import machine, topology_place
from astraeus.model.machine import Nic
from astraeus.topology.labels import FOREIGN, canonical, effective

EVERY_PORT = "*"


@dataclass(frozen=True)
class Placed:
    """What is known of a machine's place: labels (None takes one away), and its ports by `device:port` or device."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    ports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


OF_MACHINE = and_(topology_place.c.cluster == machine.c.cluster, topology_place.c.machine == machine.c.name)
PLACE = (
    cast(topology_place.c.labels, Text).label("place_labels"),
    cast(topology_place.c.ports, Text).label("place_ports"),
)
"""Joined to a machine's row by `OF_MACHINE`; `placed_as` reads both."""


@lru_cache(maxsize=1 << 14)
def placed_as(labels: str | None, ports: str | None) -> Placed:
    """The place that a row's two columns tell; they are NULL for a machine that no scan has seen."""
    return Placed(json.loads(labels) if labels else {}, json.loads(ports) if ports else {})


def labels_at(labels: Mapping[str, str], placed: Placed) -> Mapping[str, str]:
    """A machine's labels: a scan's or a file's before its agent's, ours before those of others."""
    if placed.labels:
        return effective(labels, placed.labels)
    return labels if FOREIGN.isdisjoint(labels) else canonical(labels)


def ports_at(ports: tuple[Nic, ...], placed: Placed) -> tuple[Nic, ...]:
    """A machine's ports for training: of what its agent and the scan say of one the worse, without those elsewhere."""
    if not placed.ports:
        return ports
    found = []
    for port in ports:
        known = _known(port, placed)
        if known is None:
            found.append(port)
        elif known.get("use", True):
            found.append(_as_known(port, known))
    return tuple(found)


def _known(port: Nic, placed: Placed) -> Mapping[str, Any] | None:
    if port.link != "infiniband":
        return None
    return placed.ports.get(port.hca) or placed.ports.get(port.device) or placed.ports.get(EVERY_PORT)


def _as_known(port: Nic, known: Mapping[str, Any]) -> Nic:
    rail = known.get("rail")
    return _changed(
        port,
        port.rail if rail is None else int(rail),
        min(port.gbps, float(known.get("gbps", port.gbps))),
        port.up and bool(known.get("up", True)),
    )


def _changed(port: Nic, rail: int, gbps: float, up: bool) -> Nic:
    """The same object where nothing changes, since snapshots are compared."""
    if (port.rail, port.gbps, port.up) == (rail, gbps, up):
        return port
    return port.model_copy(update={"rail": rail, "gbps": gbps, "up": up})
