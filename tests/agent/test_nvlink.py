"""NVLink domains as NVML tells them, with the binding's own structures."""

import ctypes
from typing import Any

import pynvml
import pytest

from astraeus.agent.nvlink import nvlink_domain

UUID = bytes.fromhex("3f2504e04f8941d39a0c0305e82c3301")


class Nvml:
    """The binding with GPUs of the given fabrics: (UUID, clique, state, status) each."""

    NVMLError = pynvml.NVMLError
    NVML_GPU_FABRIC_STATE_COMPLETED = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
    c_nvmlGpuFabricInfo_t = pynvml.c_nvmlGpuFabricInfo_t

    def __init__(self, *gpus: tuple[bytes, int, int, int] | None) -> None:
        self.gpus = gpus

    def nvmlDeviceGetGpuFabricInfo(self, device: int, where: Any) -> None:
        told = self.gpus[device]
        if told is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        info = ctypes.cast(where, ctypes.POINTER(pynvml.c_nvmlGpuFabricInfo_t)).contents
        info.clusterUuid[:] = list(told[0])
        info.cliqueId, info.state, info.status = told[1:]

    def domain(self) -> str | None:
        return nvlink_domain(self, list(range(len(self.gpus))))


DONE = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED


def test_uuid_and_clique_name_the_domain() -> None:
    assert Nvml(*[(UUID, 7, DONE, 0)] * 4).domain() == "3f2504e0-4f89-41d3-9a0c-0305e82c3301.7"


@pytest.mark.parametrize(
    "gpus",
    [
        [],
        [None],
        [(bytes(16), 0, DONE, 0)],
        [(UUID, 7, DONE - 1, 0)],
        [(UUID, 7, DONE, 1)],
        [(UUID, 7, DONE, 0), (UUID, 8, DONE, 0)],
        [(UUID, 7, DONE, 0), None],
    ],
)
def test_gpus_that_do_not_agree_or_are_not_ready_are_in_none(gpus: Any) -> None:
    assert Nvml(*gpus).domain() is None


def test_an_old_library() -> None:
    class Old:
        NVMLError = pynvml.NVMLError

    assert nvlink_domain(Old(), [0]) is None
