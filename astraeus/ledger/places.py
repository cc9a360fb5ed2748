"""Where machines are by the last scan or file, over what their own agents say. Everybody reads both through here."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sqlalchemy import Text, cast, select, true

from astraeus.ledger.core import Tx
from astraeus.ledger.tables import topology_place
from astraeus.model.machine import Nic
from astraeus.topology.labels import canonical, effective

EVERY_PORT = "*"


@dataclass(frozen=True)
class Placed:
    """What is known of a machine's place: labels (None takes one away), and its ports by `device:port` or device."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    ports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


NOWHERE = Placed()


async def places(tx: Tx, cluster: str, names: Collection[str] | None = None) -> dict[str, Placed]:
    """The machines that are placed, by name; only these, where they are given."""
    p = topology_place.c
    query = select(p.machine, cast(p.labels, Text), cast(p.ports, Text)).where(
        p.cluster == cluster, true() if names is None else p.machine.in_(names)
    )
    return {name: _placed(labels, ports) for name, labels, ports in await tx.conn.execute(query)}


@lru_cache(maxsize=1 << 14)
def _placed(labels: str, ports: str) -> Placed:
    return Placed(json.loads(labels), json.loads(ports))


def labels_at(labels: Mapping[str, str], placed: Placed) -> dict[str, str]:
    """A machine's labels: a scan's or a file's before its agent's, ours before those of others."""
    return effective(labels, placed.labels) if placed.labels else canonical(labels)


def ports_at(ports: Sequence[Nic], placed: Placed) -> tuple[Nic, ...]:
    """A machine's ports for training: of what its agent and the scan say of one the worse, without those elsewhere."""
    if not placed.ports:
        return tuple(ports)
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
