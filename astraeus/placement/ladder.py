"""The ladder's levels: which machines may stand together on a rung, and the words for what they got."""

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

    `link` is the RDMA or Ethernet link that every member needs there (None: no port at all). `parts` are what a
    domain's key is made of, those with a question mark may be missing; the templates after it are filled with them.
    """

    rung: Rung
    link: int | None
    parts: tuple[str, ...]
    needs: str
    wanted: str
    now: str
    network: str
    words: str

    def key(self, machine: Machine) -> Key:
        """A machine's domain, None where it has none. Without parts all machines are in one."""
        found = []
        for part in self.parts:
            value: str | None = getattr(machine, part.rstrip("?"))
            if not value and not part.endswith("?"):
                return None
            found.append(value or "")
        return tuple(found) or ("",)


LEVELS: tuple[Level, ...] = (
    Level(Rung.MACHINE, None, ("name",), "", "one machine ({0})", "machine {0}", "machine:{0}", "one machine"),
    Level(
        Rung.NVLINK,
        None,
        ("nvlink_domain",),
        "in one NVLink domain",
        "one NVLink domain ({0})",
        "NVLink domain {0}",
        "nvlink:{0}",
        "one NVLink domain",
    ),
    Level(
        Rung.LEAF,
        INFINIBAND,
        ("fabric?", "leaf"),
        "in one leaf group",
        "one leaf switch ({1})",
        "leaf switch {1}",
        "leaf:{1}",
        "one leaf group",
    ),
    Level(
        Rung.FABRIC_RACK,
        INFINIBAND,
        ("fabric", "rack"),
        "in one rack on one InfiniBand fabric",
        "one rack ({1}) on InfiniBand fabric {0}",
        "rack {1} on InfiniBand fabric {0}",
        "fabric:{0}",
        "one rack on one InfiniBand fabric",
    ),
    Level(
        Rung.FABRIC,
        INFINIBAND,
        ("fabric",),
        "on one InfiniBand fabric",
        "one InfiniBand fabric ({0})",
        "InfiniBand fabric {0}",
        "fabric:{0}",
        "one InfiniBand fabric",
    ),
    Level(
        Rung.ROCE_LEAF,
        ROCE,
        ("roce", "leaf"),
        "in one RoCE leaf",
        "one RoCE leaf ({1})",
        "RoCE leaf {1}",
        "roce:{1}",
        "one RoCE leaf",
    ),
    Level(
        Rung.ROCE_LEAF,
        ROCE,
        ("roce", "rack"),
        "in one RoCE rack",
        "one RoCE rack ({1})",
        "RoCE rack {1}",
        "roce:{1}",
        "one RoCE rack",
    ),
    Level(
        Rung.ROCE,
        ROCE,
        ("roce",),
        "on one RoCE network",
        "one RoCE network ({0})",
        "RoCE network {0}",
        "roce:{0}",
        "one RoCE network",
    ),
    Level(
        Rung.ETHERNET_RACK,
        ETHERNET,
        ("rack",),
        "in one Ethernet rack",
        "one Ethernet rack ({0})",
        "Ethernet rack {0}",
        "ethernet:{0}",
        "one Ethernet rack",
    ),
    Level(
        Rung.ETHERNET,
        ETHERNET,
        (),
        "",
        "Ethernet across racks",
        "Ethernet across racks",
        "ethernet",
        "Ethernet across racks",
    ),
)
"""All levels, tightest first. Two of them are rung 6."""

MACHINE_LEVEL, NVLINK_LEVEL = 0, 1
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
