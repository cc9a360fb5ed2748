"""The NVLink domain a machine's GPUs are in: machines that share it reach each other over NVLink."""

import ctypes
import uuid
from typing import Any


def nvlink_domain(nvml: Any, devices: list[Any]) -> str | None:
    """`<cluster UUID>.<clique>` as NVIDIA's `gpu.clique` label spells it; None outside a multi-machine NVLink fabric.

    Two machines are in one domain only if both agree: the same UUID with another clique is a partitioned rack. GPUs of
    one machine that do not agree, or whose fabric is not ready, are in none.
    """
    found = {_domain(nvml, device) for device in devices}
    return found.pop() if len(found) == 1 else None


def _domain(nvml: Any, device: Any) -> str | None:
    try:
        info = nvml.c_nvmlGpuFabricInfo_t()
        nvml.nvmlDeviceGetGpuFabricInfo(device, ctypes.byref(info))
    except (nvml.NVMLError, AttributeError):
        # An older driver or an older library: there is no such fabric then.
        return None
    if info.state != nvml.NVML_GPU_FABRIC_STATE_COMPLETED or info.status or not any(info.clusterUuid):
        return None
    return f"{uuid.UUID(bytes=bytes(info.clusterUuid))}.{info.cliqueId}"
