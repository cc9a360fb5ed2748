"""What the planner is told and what it decides: values only, no clock, no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from astraeus.model.machine import FABRIC, LEAF, NVLINK, RACK, ROCE, SPINE, Nic
from astraeus.model.network import NetworkPlace, Rung
from astraeus.model.spec import Resources

HALF_LIFE_SECONDS = 7 * 86_400.0
"""A week: what Slurm's multifactor plugin takes for PriorityDecayHalfLife where nothing is set."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine. GPU sets are bitmasks. `refusal` says why it takes no work now ('down', 'cordoned', …)."""

    name: str
    gpus: int
    gpu_model: str
    cpu_cores: float
    memory_bytes: int
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Nic, ...] = ()
    broken: int = 0
    doubtful: int = 0
    refusal: str | None = None

    @property
    def leaf(self) -> str | None:
        """Its leaf group."""
        return self.labels.get(LEAF)

    @property
    def spine(self) -> str | None:
        """Its spine group."""
        return self.labels.get(SPINE)

    @property
    def fabric(self) -> str | None:
        """Its InfiniBand fabric."""
        return self.labels.get(FABRIC)

    @property
    def rack(self) -> str | None:
        """Its rack."""
        return self.labels.get(RACK)

    @property
    def nvlink_domain(self) -> str | None:
        """Its multi-node NVLink domain."""
        return self.labels.get(NVLINK)

    @property
    def roce(self) -> str | None:
        """The RoCE network it is on."""
        return self.labels.get(ROCE)


@dataclass(frozen=True, slots=True)
class Holding:
    """Room one worker of a granted claim holds on a machine.

    `ends_at` is when its time limit ends it, None also until its members run together; a `stopping` one frees its room
    by itself and is no victim.
    """

    claim: int
    run_uid: str
    run_name: str
    workspace: str
    attempt: int
    machine: str
    gpu_mask: int
    cpu_cores: float
    memory_bytes: int
    priority: int = 0
    preemptible: bool = True
    started_at: float = 0.0
    ends_at: float | None = None
    stopping: bool = False
    time_limit_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A waiting claim. `submitted_at` is the run's own, kept through restarts; `avoid`: machines it just failed on."""

    claim: int
    run_uid: str
    run_name: str
    workspace: str
    attempt: int
    resources: Resources
    priority: int
    submitted_at: float
    patience_until: float
    avoid: frozenset[str] = frozenset()
    time_limit_seconds: int | None = None
    preemptible: bool = True


@dataclass(frozen=True, slots=True)
class Reserved:
    """GPUs of a machine kept for a waiting claim, by an eviction for it or because it is first in line."""

    claim: int
    machine: str
    gpu_mask: int


@dataclass(frozen=True, slots=True)
class Allotment:
    """What a workspace is due: at most `gpu_quota` GPUs at a time, and its weight among those that share the cluster.

    None: no bound, and a share of 1 where others have one. `used` are the GPU-seconds of all that it holds no more,
    decayed up to `used_at`.
    """

    gpu_quota: int | None = None
    share: float | None = None
    used: float = 0.0
    used_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a pass decides on, from one consistent state of the ledger. `factors` overrides the estimate's.

    `allotments` are those of all workspaces of the cluster, by path; none where nobody has a quota or a share.
    `half_life_seconds` is how long use takes to count half.
    """

    cluster: str
    machines: tuple[Machine, ...]
    holdings: tuple[Holding, ...] = ()
    asks: tuple[Ask, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    factors: Mapping[str, float] = field(default_factory=dict)
    allotments: Mapping[str, Allotment] = field(default_factory=dict)
    half_life_seconds: float = HALF_LIFE_SECONDS


# A pass makes thousands of these; frozen ones take thrice as long to make.
@dataclass(slots=True, unsafe_hash=True)
class Member:
    """One worker's place. `hcas` are the ports it is given, as NCCL_IB_HCA names them."""

    rank: int
    machine: str
    gpu_mask: int
    cpu_cores: float
    memory_bytes: int
    hcas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """A whole gang placed: members in rank order, the rung it reached and what to expect there."""

    claim: int
    run_uid: str
    attempt: int
    rung: Rung
    place: NetworkPlace
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Eviction:
    """A whole run to be stopped so that a higher one gets its room."""

    claim: int
    run_uid: str
    attempt: int
    for_claim: int
    for_run: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a claim still waits: the sentence users read, all blockers behind it, and its place in the queue (from 1).

    `victims` are the runs that this pass stops for it. `starts_by` is when it will have room at the latest, as far as
    time limits tell; None: unknown.
    """

    claim: int
    run_uid: str
    reason: str
    blockers: tuple[str, ...] = ()
    position: int = 0
    victims: tuple[str, ...] = ()
    starts_by: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pass decided. `next_change_at` is when it would decide otherwise by the passing of time alone."""

    grants: tuple[Grant, ...] = ()
    waits: tuple[Wait, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    next_change_at: float | None = None
