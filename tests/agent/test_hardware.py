"""What a computer says of itself, from a tree like the kernel's and a library like NVIDIA's."""

import sys
from pathlib import Path
from typing import Any

import pytest

from astraeus.agent import hardware


class NVMLError(Exception):
    """As the binding has it."""

    def __init__(self, value: object) -> None:
        super().__init__(value)
        self.value = value


class Nvml:
    """Four GPUs: one well, one with a row to be remapped, one that failed to, one that does not answer."""

    NVMLError = NVMLError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVML_ERROR_GPU_IS_LOST = 15

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 4

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 3:
            raise NVMLError("fallen off the bus")
        return index

    def nvmlDeviceGetName(self, device: int) -> bytes:
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetRemappedRows(self, device: int) -> tuple[int, int, int, int]:
        return (0, 0, int(device == 1), int(device == 2))

    def nvmlDeviceGetTotalEccErrors(self, *_: Any) -> int:
        raise NVMLError("not supported")


def test_gpus_and_their_health() -> None:
    gpus = hardware.read_gpus(Nvml())
    assert gpus == hardware.Gpus(4, "NVIDIA H100 80GB HBM3", doubtful=(1,), broken=(2, 3))


class LostRows(Nvml):
    """The first GPU is lost before its rows are asked for."""

    def nvmlDeviceGetRemappedRows(self, device: int) -> tuple[int, int, int, int]:
        if device == 0:
            raise NVMLError(self.NVML_ERROR_GPU_IS_LOST)
        return super().nvmlDeviceGetRemappedRows(device)


class LostErrors(Nvml):
    """The first GPU is lost before its errors are asked for."""

    def nvmlDeviceGetTotalEccErrors(self, device: int, *_: Any) -> int:
        raise NVMLError(self.NVML_ERROR_GPU_IS_LOST if device == 0 else "not supported")


@pytest.mark.parametrize("nvml", [LostRows(), LostErrors()])
def test_a_gpu_that_is_lost_while_it_is_asked_is_broken(nvml: Nvml) -> None:
    gpus = hardware.read_gpus(nvml)
    assert gpus == hardware.Gpus(4, "NVIDIA H100 80GB HBM3", doubtful=(1,), broken=(0, 2, 3))


class Uncounted(Nvml):
    def nvmlDeviceGetCount(self) -> int:
        raise NVMLError("unknown error")


def test_gpus_that_cannot_be_counted_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Uncounted())
    assert hardware.find_gpus() == hardware.Gpus()


def port(root: Path, device: str, bus: str, rate: str, layer: str = "InfiniBand", state: str = "4: ACTIVE") -> None:
    pci = root / "sys/devices/pci0000:00" / bus
    pci.mkdir(parents=True)
    base = root / "sys/class/infiniband" / device
    (base / "ports/1").mkdir(parents=True)
    (base / "device").symlink_to(pci)
    for name, text in (("rate", rate), ("link_layer", layer), ("state", state)):
        (base / "ports/1" / name).write_text(text + "\n")


def test_ports_know_their_adapter(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", "0000:18:00.0", "400 Gb/sec (4X NDR)")
    port(tmp_path, "mlx5_1", "0000:9a:00.0", "400 Gb/sec (4X NDR)")
    (tmp_path / "sys/class/infiniband/mlx5_1/node_guid").write_text("a088:c203:004d:9c10\n")
    assert [nic.node_guid for nic in hardware.find_nics(tmp_path)] == [None, "a088:c203:004d:9c10"]


def test_ports_are_rails_in_the_order_of_the_bus(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", "0000:9a:00.0", "400 Gb/sec (4X NDR)")
    port(tmp_path, "mlx5_1", "0000:18:00.0", "200 Gb/sec (4X HDR)", state="1: DOWN")
    port(tmp_path, "mlx5_2", "0000:c0:00.0", "100 Gb/sec (4X EDR)", layer="Ethernet")
    found = [(nic.device, nic.rail, nic.gbps, nic.link, nic.up) for nic in hardware.find_nics(tmp_path)]
    assert found == [
        ("mlx5_1", 0, 200, "infiniband", False),
        ("mlx5_0", 1, 400, "infiniband", True),
        ("mlx5_2", 2, 100, "roce", True),
    ]


def test_this_computer() -> None:
    facts = hardware.this_machine("http://127.0.0.1:1", {"site": "here"})
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.cpu_cores >= 1
    assert facts.memory_bytes > 2**20
    assert (facts.address, facts.virtual) == ("127.0.0.1", False)


def test_a_host_name_becomes_a_machine_name() -> None:
    assert hardware.machine_name("GPU_Node7.example.org") == "gpu-node7"
    assert hardware.machine_name("...") == "machine"
