"""Machines as their agents describe them and as the ledger keeps them."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

LABEL = "topology.astraeus.io/"
LEAF, SPINE, FABRIC, RACK, NVLINK = (LABEL + part for part in ("leaf", "spine", "fabric", "rack", "nvlink-domain"))
ROCE = LABEL + "roce"
"""Id of the RoCE network a machine's RoCE ports are on; machines without it share none."""

DEFAULT_GRACE_SECONDS = 30

MachineState = Literal["Ready", "Down", "Returning"]
"""Ready takes work; Down is lost; Returning has been heard again but has not yet proved its old work dead."""


class Lenient(BaseModel):
    """A value read from a history, a row or an agent of another version: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Nic(Lenient):
    """One network port. `gbps` is the data rate in Gb/s; `rail` orders the compute ports of a machine.

    `node_guid` is the InfiniBand adapter's own GUID, by which a scan of the fabric knows whose it is.
    """

    device: str
    port: int = 1
    rail: int = 0
    gbps: float
    link: Literal["infiniband", "roce", "ethernet"] = "infiniband"
    up: bool = True
    node_guid: str | None = None

    @property
    def hca(self) -> str:
        """The port as NCCL_IB_HCA names it."""
        return f"{self.device}:{self.port}"


class MachineFacts(Lenient):
    """What an agent says of its machine, complete each time it is said.

    `doubtful_gpus` show signs of a coming fault, `broken_gpus` take no work; both hold GPU indices.
    `address` is where other members reach this machine.
    """

    name: str
    boot_id: str
    address: str
    gpu_model: str = ""
    gpus: int = 0
    doubtful_gpus: list[int] = []
    broken_gpus: list[int] = []
    cpu_cores: float
    memory_bytes: int
    labels: dict[str, str] = {}
    nics: list[Nic] = []
    socket_ifname: str | None = None
    stop_grace_seconds: int = DEFAULT_GRACE_SECONDS
    virtual: bool = False


class MachineView(Lenient):
    """A machine as the API shows it; `used_gpus` and `free_gpus` count, `runs` names who holds them.

    `drain` is `draining` while runs still hold it after a drain, then `drained`.
    """

    name: str
    cluster: str
    state: MachineState
    cordoned: bool = False
    drain_reason: str | None = None
    drained_by: str | None = None
    drain: Literal["draining", "drained"] | None = None
    gpu_model: str
    gpus: int
    used_gpus: int
    free_gpus: int
    doubtful_gpus: list[int] = []
    broken_gpus: list[int] = []
    cpu_cores: float
    memory_bytes: int
    labels: dict[str, str]
    nics: list[Nic]
    runs: list[str] = []
    heard_seconds_ago: float | None = None
