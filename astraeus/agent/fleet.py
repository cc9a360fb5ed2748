"""Virtual fleets: a YAML file in, the facts of every machine out, with every fault of the file named at once.

A key of `machines` is a name or a range, `m-{0..7}`; in the values of a range `{n}`, `{n/8}` and `{n%8}` stand for the
machine's number, its whole eighth and the rest, so that ten thousand machines are one line.
"""

import difflib
import itertools
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from astraeus.model.errors import Invalid
from astraeus.model.machine import LABEL, MachineFacts, Nic
from astraeus.model.names import name_fault

SHORT_LABELS = ("leaf", "spine", "fabric", "rack", "nvlink-domain", "roce")
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "kB": 10**3, "MB": 10**6, "GB": 10**9}
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
NUMBER = re.compile(r"\{n(?:([/%])(\d+))?\}")
MACHINES_MAX = 100_000
RAILS_MAX = 64


class Strict(BaseModel):
    """Part of a fleet file; unknown fields and wrong types are faults."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Rails(Strict):
    """The compute ports of a machine. `down` names ports without a link, `slow` gives others their rate in Gb/s."""

    count: Annotated[int, Field(ge=1, le=RAILS_MAX)]
    gbps: Annotated[float, Field(gt=0, le=100_000)]
    link: Literal["infiniband", "roce", "ethernet"] = "infiniband"
    device: str = "mlx5_"
    down: list[str] = []
    slow: dict[str, Annotated[float, Field(gt=0, le=100_000)]] = {}


class Shape(Strict):
    """What a machine has. Everything left out comes from its template, then from the defaults."""

    template: str | None = None
    gpus: Annotated[int, Field(ge=0, le=63)] | None = None
    gpu_model: str | None = None
    doubtful_gpus: list[Annotated[int, Field(ge=0, le=62)]] | None = None
    broken_gpus: list[Annotated[int, Field(ge=0, le=62)]] | None = None
    cpu_cores: Annotated[float, Field(gt=0, le=100_000)] | None = None
    memory: str | int | None = None
    rails: Rails | None = None
    labels: dict[str, str] = {}
    address: str | None = None
    stop_grace_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None


class FleetFile(Strict):
    """The whole file."""

    cluster: str
    templates: dict[str, Shape] = {}
    machines: Annotated[dict[str, Shape | None], Field(min_length=1)]


@dataclass(frozen=True)
class Fleet:
    """The machines of one cluster; their boot ids are empty until an agent hosts them."""

    cluster: str
    machines: tuple[MachineFacts, ...]


class _Loader(yaml.SafeLoader):
    """YAML in which a key given twice is a fault instead of a silent loss."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def default_fleet() -> Path:
    """The file of the fleet that `astra dev` hosts when none is named."""
    return Path(__file__).parent / "fleets" / "default.yaml"


def load_fleet(path: Path) -> Fleet:
    """Read a fleet file; `Invalid` names everything that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise Invalid(f"cannot read the fleet file {path}: {fault}") from fault
    return parse_fleet(text, path.name)


def parse_fleet(text: str, name: str = "fleet") -> Fleet:
    """The fleet that a YAML text describes."""
    try:
        content = yaml.load(text, _Loader)
    except yaml.YAMLError as fault:
        raise Invalid(f"{name} is not YAML: {fault}") from fault
    if not isinstance(content, dict):
        raise Invalid(f"{name} must be a mapping with `cluster` and `machines`")
    try:
        file = FleetFile.model_validate(content)
    except ValidationError as fault:
        raise Invalid("\n".join(f"{name}: {_words(error)}" for error in fault.errors())) from None
    faults: list[str] = []
    if wrong := name_fault(file.cluster):
        faults.append(f"cluster: {file.cluster!r} {wrong}")
    machines = _machines(file, faults)
    if faults:
        raise Invalid("\n".join(f"{name}: {fault}" for fault in faults))
    return Fleet(file.cluster, tuple(machines))


def _words(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] != "extra_forbidden":
        return f"{where}: {error['msg']}"
    known = {*FleetFile.model_fields, *Shape.model_fields, *Rails.model_fields}
    near = difflib.get_close_matches(str(error["loc"][-1]), sorted(known), 1)
    return f"{where}: unknown field" + (f"; did you mean {near[0]}?" if near else "")


def _machines(file: FleetFile, faults: list[str]) -> list[MachineFacts]:
    found: dict[str, MachineFacts] = {}
    for key, given in file.machines.items():
        where = f"machines.{key}"
        shape = _merged(file, given or Shape(), where, faults)
        if shape is None:
            continue
        for name, number in _names(key, faults):
            if wrong := name_fault(name):
                faults.append(f"{where}: {name!r} {wrong}")
            elif name in found:
                faults.append(f"{where}: there is a {name} already")
            elif len(found) >= MACHINES_MAX:
                faults.append(f"{where}: more than {MACHINES_MAX} machines")
                return []
            else:
                try:
                    found[name] = _facts(name, number, shape)
                except ValueError as fault:
                    faults.append(f"{where}: {fault}")
                    break
    return list(found.values())


def _names(key: str, faults: list[str]) -> Iterator[tuple[str, int | None]]:
    ranges = list(RANGE.finditer(key))
    if not ranges:
        yield key, None
        return
    first, last = int(ranges[0][1]), int(ranges[0][2])
    if len(ranges) > 1 or last < first or last - first >= MACHINES_MAX:
        faults.append(f"machines.{key}: give one range, from the lower to the higher number")
        return
    for number in range(first, last + 1):
        yield key.replace(ranges[0][0], str(number)), number


def _merged(file: FleetFile, shape: Shape, where: str, faults: list[str]) -> dict[str, Any] | None:
    chain = [shape]
    while (wanted := chain[-1].template) is not None:
        template = file.templates.get(wanted)
        if template is None or template in chain:
            fault = "there is no template" if template is None else "templates go in circles at"
            faults.append(f"{where}: {fault} {wanted}")
            return None
        chain.append(template)
    merged: dict[str, Any] = {"labels": {}}
    for part in reversed(chain):
        merged |= {name: value for name, value in part if value is not None and name != "labels"}
        merged["labels"] = merged["labels"] | part.labels
    return merged


def _facts(name: str, number: int | None, shape: dict[str, Any]) -> MachineFacts:
    gpus = shape.get("gpus", 0)
    unknown = [gpu for gpu in (*shape.get("doubtful_gpus", []), *shape.get("broken_gpus", [])) if gpu >= gpus]
    if unknown:
        raise ValueError(f"there is no GPU {unknown[0]} among {gpus}")
    if gpus and not shape.get("gpu_model"):
        raise ValueError("gpu_model is missing")
    labels = {full_label(key): _numbered(value, number) for key, value in shape["labels"].items()}
    return MachineFacts(
        name=name,
        boot_id="",
        address=_numbered(shape.get("address", "127.0.0.1"), number),
        gpu_model=shape.get("gpu_model", ""),
        gpus=gpus,
        doubtful_gpus=shape.get("doubtful_gpus", []),
        broken_gpus=shape.get("broken_gpus", []),
        cpu_cores=shape.get("cpu_cores", 8.0),
        memory_bytes=parse_memory(shape.get("memory", "32GiB")),
        labels=labels,
        nics=_nics(shape.get("rails")),
        stop_grace_seconds=shape.get("stop_grace_seconds", 30),
        virtual=True,
    )


def _nics(rails: Rails | None) -> list[Nic]:
    if rails is None:
        return []
    devices = [f"{rails.device}{rail}" for rail in range(rails.count)]
    for device in itertools.chain(rails.down, rails.slow):
        if device not in devices:
            raise ValueError(f"there is no port {device} among {devices[0]} to {devices[-1]}")
    return [
        Nic(
            device=device,
            rail=rail,
            gbps=rails.slow.get(device, rails.gbps),
            link=rails.link,
            up=device not in rails.down,
        )
        for rail, device in enumerate(devices)
    ]


def full_label(key: str) -> str:
    """The whole name of a label of place that was given by its short name."""
    return LABEL + key if key in SHORT_LABELS else key


def _numbered(value: str, number: int | None) -> str:
    def place(match: re.Match[str]) -> str:
        if number is None:
            raise ValueError(f"{match[0]} has no meaning for a single machine")
        if not match[1]:
            return str(number)
        divisor = int(match[2])
        if divisor == 0:
            raise ValueError(f"{match[0]} divides by zero")
        return str(number // divisor if match[1] == "/" else number % divisor)

    return NUMBER.sub(place, value)


def parse_memory(value: str | int) -> int:
    """Bytes from a number or from a text such as `2TiB`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(value))
    if match is None or match[2] not in UNITS:
        raise ValueError(f"memory {value!r} is not a number with one of {', '.join(unit for unit in UNITS if unit)}")
    return int(float(match[1]) * UNITS[match[2]])
