"""The run specification: every field with its default and bounds.

Input goes through `astraeus.model.faults.parse_submission`, which reports every fault at once; these models
are what a good specification becomes.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from astraeus.model.names import RUN_NAME_MAX, canonical

GIB = 1024**3
DAY = 86_400
CONFIG_BYTES_MAX = 1024 * 1024
LABELS_MAX = 64
ENV_MAX = 4096
UNLIMITED = "unlimited"

DNS_LABEL = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
ABSOLUTE_PATH = r"^/[^\x00]*[^\x00/]$"
NO_NUL = r"^[^\x00]*$"
PATTERNS = {
    DNS_LABEL: "use lower-case letters, digits and '-', starting and ending with a letter or digit",
    ENV_NAME: "use letters, digits and '_', not starting with a digit",
    ABSOLUTE_PATH: "use an absolute path that does not end in '/', such as /ckpt",
}
"""What to do where a text does not match its pattern."""


def _canonical(value: object) -> object:
    return canonical(value) if isinstance(value, str) else value


Canonical = BeforeValidator(_canonical)
"""Names are canonical before first use, also those read from what a user wrote."""
EnvName = Annotated[str, Field(pattern=ENV_NAME, max_length=256)]
AbsolutePath = Annotated[str, Field(pattern=ABSOLUTE_PATH, max_length=4096)]
Text = Annotated[str, Field(pattern=NO_NUL)]
LabelKey = Annotated[Text, Field(min_length=1, max_length=253)]
LabelValue = Annotated[Text, Field(max_length=256)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=LABELS_MAX)]
KeepWithin = Literal["machine", "nvlink_domain", "leaf", "rack", "fabric", "rdma", "any"]
Interconnect = Literal["any", "ethernet", "rdma", "infiniband", "nvlink"]


class Part(BaseModel):
    """A part of the specification as users write it: unknown fields and coerced types are faults."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Metadata(Part):
    """What a run is called."""

    name: Annotated[str, Field(pattern=DNS_LABEL, max_length=RUN_NAME_MAX), Canonical]
    labels: Labels = {}


class DriveMount(Part):
    """A drive of the workspace, mounted into every worker."""

    name: Annotated[str, Field(pattern=DNS_LABEL, max_length=63), Canonical]
    mount_path: AbsolutePath
    mode: Literal["ReadWrite", "ReadOnly"] = "ReadWrite"


class ConfigFile(Part):
    """One text, as a file at each of its paths."""

    mounts: Annotated[list[AbsolutePath], Field(min_length=1, max_length=64)]
    value: Text


class GpuRequests(Part):
    """GPUs of the whole run."""

    count: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    models: Annotated[list[Annotated[Text, Field(min_length=1, max_length=128)]], Field(max_length=64)] = []
    healthy_only: bool = False
    min_per_machine: Annotated[int, Field(ge=1, le=1024)] | None = None


class PerGpu(Part):
    """CPU cores and bytes of memory for each GPU; for each worker where the run asks for no GPU."""

    cpu_cores: Annotated[float, Field(ge=0, le=4096, allow_inf_nan=False)] = 0
    memory_bytes: Annotated[int, Field(ge=0, le=2**50)] = 0


class Network(Part):
    """Which network the run needs; `min_gbps` is Gb/s per port."""

    interconnect: Interconnect = "any"
    min_gbps: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)] = 0


class Topology(Part):
    """How far the gang may be spread, and how many seconds it waits for a tighter rung."""

    keep_within: KeepWithin = "any"
    patience_seconds: Annotated[int, Field(ge=0, le=30 * DAY)] = 0


class AnyMachine(Part):
    """Any machine that carries all these labels."""

    mode: Literal["Any"] = "Any"
    match_labels: Labels = {}


class NamedMachines(Part):
    """Only the machines named."""

    mode: Literal["Named"]
    machines: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=253), Canonical]], Field(min_length=1, max_length=10_000)
    ]


MachineSelection = Annotated[AnyMachine | NamedMachines, Field(discriminator="mode")]


class Resources(Part):
    """What the run asks of the machines."""

    gpu_requests: GpuRequests = GpuRequests()
    machines: Annotated[int, Field(ge=1, le=10_000)] | None = None
    per_gpu: PerGpu = PerGpu()
    network: Network = Network()
    topology: Topology = Topology()
    machine_selection: MachineSelection = AnyMachine()


class TaskTemplate(Part):
    """What every worker runs, and on what."""

    image: Annotated[Text, Field(max_length=1024)] = ""
    command: Annotated[Text, Field(min_length=1, max_length=4096)]
    args: Annotated[list[Annotated[Text, Field(max_length=128 * 1024)]], Field(max_length=4096)] = []
    env: Annotated[dict[EnvName, Annotated[Text, Field(max_length=128 * 1024)]], Field(max_length=ENV_MAX)] = {}
    secret_env: Annotated[list[EnvName], Field(max_length=256)] = []
    time_limit_seconds: Annotated[int, Field(ge=1, le=3650 * DAY)] | None = None
    stop_grace_seconds: Annotated[int, Field(ge=0, le=DAY)] | None = None
    drives: Annotated[list[DriveMount], Field(max_length=64)] = []
    configs: Annotated[list[ConfigFile], Field(max_length=256)] = []
    requested_resources: Resources = Resources()


class RunSpec(Part):
    """The specification proper: how the gang starts, what a failure does, and the task."""

    start: Literal["Gang", "Independent"] = "Gang"
    on_failure: Literal["RestartJob", "RestartWorker", "Fail"] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    preemptible: bool = True
    restart_budget: Annotated[int, Field(ge=0, le=1_000_000)] | Literal["unlimited"] = 10
    task_template: TaskTemplate

    @property
    def failure_rule(self) -> str:
        """`on_failure`, or its default for the way the run starts."""
        return self.on_failure or ("RestartJob" if self.start == "Gang" else "RestartWorker")


class Submission(Part):
    """A run as it is submitted: the body of `POST /runs` and of a template."""

    metadata: Metadata
    spec: RunSpec
