"""The ladder's levels: which machines may stand together on a rung, and the words for what they got."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from astraeus.model.network import Rung
from astraeus.model.spec import Interconnect, KeepWithin
from astraeus.placement.types import Machine

INFINIBAND, ROCE, ETHERNET = 0, 1, 2
LINKS = ("infiniband", "roce", "ethernet")
"""The links in the order of their numbers."""

Key = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Level:
    """A way to divide the machines into domains within which a gang may stand.

    `link` is the RDMA or Ethernet link that every member needs there (None: no port at all). `key` gives a
    machine's domain, None where it has none; the templates after it are filled with the parts of the key.
    """

    rung: Rung
    link: int | None
    key: Callable[[Machine], Key]
    needs: str
    wanted: str
    now: str
    network: str
    words: str


def _both(first: str | None, second: str | None) -> Key:
    return (first, second) if first and second else None


def _one(value: str | None) -> Key:
    return (value,) if value else None


LEVELS: tuple[Level, ...] = (
    Level(
        Rung.MACHINE, None, lambda m: (m.name,), "", "one machine ({0})", "machine {0}", "machine:{0}", "one machine"
    ),
    Level(
        Rung.NVLINK,
        None,
        lambda m: _one(m.nvlink_domain),
        "in one NVLink domain",
        "one NVLink domain ({0})",
        "NVLink domain {0}",
        "nvlink:{0}",
        "one NVLink domain",
    ),
    Level(
        Rung.LEAF,
        INFINIBAND,
        lambda m: (m.fabric or "", m.leaf) if m.leaf else None,
        "in one leaf group",
        "one leaf switch ({1})",
        "leaf switch {1}",
        "leaf:{1}",
        "one leaf group",
    ),
    Level(
        Rung.FABRIC_RACK,
        INFINIBAND,
        lambda m: _both(m.fabric, m.rack),
        "in one rack on one InfiniBand fabric",
        "one rack ({1}) on InfiniBand fabric {0}",
        "rack {1} on InfiniBand fabric {0}",
        "fabric:{0}",
        "one rack on one InfiniBand fabric",
    ),
    Level(
        Rung.FABRIC,
        INFINIBAND,
        lambda m: _one(m.fabric),
        "on one InfiniBand fabric",
        "one InfiniBand fabric ({0})",
        "InfiniBand fabric {0}",
        "fabric:{0}",
        "one InfiniBand fabric",
    ),
    Level(
        Rung.ROCE_LEAF,
        ROCE,
        lambda m: _both(m.roce, m.leaf),
        "in one RoCE leaf",
        "one RoCE leaf ({1})",
        "RoCE leaf {1}",
        "roce:{1}",
        "one RoCE leaf",
    ),
    Level(
        Rung.ROCE_LEAF,
        ROCE,
        lambda m: _both(m.roce, m.rack),
        "in one RoCE rack",
        "one RoCE rack ({1})",
        "RoCE rack {1}",
        "roce:{1}",
        "one RoCE rack",
    ),
    Level(
        Rung.ROCE,
        ROCE,
        lambda m: _one(m.roce),
        "on one RoCE network",
        "one RoCE network ({0})",
        "RoCE network {0}",
        "roce:{0}",
        "one RoCE network",
    ),
    Level(
        Rung.ETHERNET_RACK,
        ETHERNET,
        lambda m: _one(m.rack),
        "in one Ethernet rack",
        "one Ethernet rack ({0})",
        "Ethernet rack {0}",
        "ethernet:{0}",
        "one Ethernet rack",
    ),
    Level(
        Rung.ETHERNET,
        ETHERNET,
        lambda m: ("",),
        "",
        "Ethernet across racks",
        "Ethernet across racks",
        "ethernet",
        "Ethernet across racks",
    ),
)
"""All levels, tightest first. Two of them are rung 6."""

MACHINE_LEVEL = 0
LOOSEST_RUNG: dict[KeepWithin, Rung] = {
    "machine": Rung.MACHINE,
    "nvlink_domain": Rung.NVLINK,
    "leaf": Rung.LEAF,
    "rack": Rung.FABRIC_RACK,
    "fabric": Rung.FABRIC,
    "rdma": Rung.ROCE,
    "any": Rung.ETHERNET,
}
RUNGS_OF: dict[Interconnect, frozenset[Rung]] = {
    "any": frozenset(Rung),
    "ethernet": frozenset({Rung.MACHINE, Rung.ETHERNET_RACK, Rung.ETHERNET}),
    "rdma": frozenset(rung for rung in Rung if rung <= Rung.ROCE),
    "infiniband": frozenset(rung for rung in Rung if rung <= Rung.FABRIC),
    "nvlink": frozenset({Rung.MACHINE, Rung.NVLINK}),
}


@lru_cache
def levels_for(interconnect: Interconnect, keep_within: KeepWithin) -> tuple[int, ...]:
    """Indices of the levels a run may be placed on, tightest first."""
    last = LOOSEST_RUNG[keep_within]
    return tuple(i for i, level in enumerate(LEVELS) if level.rung <= last and level.rung in RUNGS_OF[interconnect])
