"""What this computer has: GPUs as NVML tells, ports as the kernel lists them, cores and memory."""

import importlib
import logging
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from astraeus.agent.nvlink import nvlink_domain
from astraeus.model.machine import NVLINK, MachineFacts, Nic
from astraeus.model.names import canonical

SYSTEM = Path("/")
LINKS = {"InfiniBand": "infiniband", "Ethernet": "roce"}
log = logging.getLogger("astraeus.agent")


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a computer; `doubtful` and `broken` hold indices."""

    count: int = 0
    model: str = ""
    doubtful: tuple[int, ...] = ()
    broken: tuple[int, ...] = ()
    nvlink_domain: str | None = None


def this_machine(api: str, labels: dict[str, str]) -> MachineFacts:
    """The facts of the computer we run on."""
    gpus = find_gpus()
    address = route_to(api)
    return MachineFacts(
        name=machine_name(socket.gethostname()),
        boot_id=boot_id(),
        address=address,
        gpu_model=gpus.model,
        gpus=gpus.count,
        doubtful_gpus=list(gpus.doubtful),
        broken_gpus=list(gpus.broken),
        cpu_cores=float(len(os.sched_getaffinity(0))),
        memory_bytes=psutil.virtual_memory().total,
        labels=({NVLINK: gpus.nvlink_domain} if gpus.nvlink_domain else {}) | labels,
        nics=find_nics(SYSTEM),
        socket_ifname=interface_of(address),
    )


def machine_name(hostname: str) -> str:
    """A machine's name: the first label of its host name, in the one form."""
    return re.sub(r"[^a-z0-9-]+", "-", canonical(hostname.partition(".")[0])).strip("-") or "machine"


def boot_id(system: Path = SYSTEM) -> str:
    """The kernel's name for the time since it was booted."""
    return (system / "proc/sys/kernel/random/boot_id").read_text().strip()


def find_nics(system: Path) -> list[Nic]:
    """The RDMA ports, rails in the order of the PCI bus."""
    base = system / "sys/class/infiniband"
    if not base.is_dir():
        return []
    devices = sorted(base.iterdir(), key=lambda device: (_bus_address(device), device.name))
    found: list[Nic] = []
    for device in devices:
        for port in sorted((device / "ports").glob("*"), key=lambda path: int(path.name)):
            rate = re.match(r"\s*([\d.]+)\s*Gb/sec", _text(port / "rate"))
            link = LINKS.get(_text(port / "link_layer").strip())
            if rate is None or link is None:
                continue
            up = "ACTIVE" in _text(port / "state")
            found.append(
                Nic.model_validate(
                    {
                        "device": device.name,
                        "port": int(port.name),
                        "rail": len(found),
                        "gbps": float(rate[1]),
                        "link": link,
                        "up": up,
                        "node_guid": _text(device / "node_guid").strip() or None,
                    }
                )
            )
    return found


def _bus_address(device: Path) -> str:
    with suppress(OSError):
        return (device / "device").resolve(strict=True).name
    return "~"


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def find_gpus() -> Gpus:
    """The NVIDIA GPUs and what their own counters say of their health; none where there is no driver."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as fault:
        # Without the library or the driver the binding raises types that only exist when it can be imported.
        log.info("no NVIDIA GPUs here: %s", fault)
        return Gpus()
    try:
        return read_gpus(nvml)
    finally:
        nvml.nvmlShutdown()


def read_gpus(nvml: Any) -> Gpus:
    """Ask NVML, which is initialised, for the GPUs. `CUDA_DEVICE_ORDER` is its order, the PCI bus's."""
    try:
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as fault:
        log.warning("the GPUs of this machine cannot be counted: %s", fault)
        return Gpus()
    models: list[str] = []
    doubtful: list[int] = []
    broken: list[int] = []
    answering: list[Any] = []
    for index in range(count):
        try:
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            name = nvml.nvmlDeviceGetName(device)
            failed, suspect = _remapping(nvml, device)
            suspect = suspect or _uncorrected(nvml, device)
        except nvml.NVMLError as fault:
            log.warning("GPU %d does not answer: %s", index, fault)
            broken.append(index)
            continue
        models.append(name.decode() if isinstance(name, bytes) else name)
        answering.append(device)
        if failed:
            broken.append(index)
        elif suspect:
            doubtful.append(index)
    if len(set(models)) > 1:
        log.warning("the GPUs of this machine are not of one model: %s", ", ".join(sorted(set(models))))
    model = models[0] if models else ""
    return Gpus(count, model, tuple(doubtful), tuple(broken), nvlink_domain(nvml, answering))


def _remapping(nvml: Any, device: Any) -> tuple[bool, bool]:
    """(a row could not be remapped, a row waits to be remapped)."""
    try:
        _, _, pending, failure = nvml.nvmlDeviceGetRemappedRows(device)
    except nvml.NVMLError as fault:
        _unless_lost(nvml, fault)
        return False, False
    return bool(failure), bool(pending)


def _uncorrected(nvml: Any, device: Any) -> bool:
    """Whether memory errors that could not be corrected happened since the driver was loaded."""
    try:
        count = nvml.nvmlDeviceGetTotalEccErrors(
            device, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
    except nvml.NVMLError as fault:
        _unless_lost(nvml, fault)
        return False
    return int(count) > 0


def _unless_lost(nvml: Any, fault: Any) -> None:
    """Raises the fault where it says more than that this kind of GPU cannot be asked that."""
    if getattr(fault, "value", None) == nvml.NVML_ERROR_GPU_IS_LOST:
        raise fault


def route_to(api: str) -> str:
    """Our own address on the way to the API, which is where other machines reach us."""
    parts = urlsplit(api)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        family, kind, _, _, target = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            # Connecting a datagram socket sends nothing; it only chooses the route.
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def interface_of(address: str) -> str | None:
    """The network interface that has an address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(item.address == address for item in addresses):
            return name
    return None
