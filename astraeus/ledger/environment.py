"""The variables a worker finds in its environment, from its place alone."""

from collections.abc import Sequence

from astraeus.model.names import worker_name


def worker_environment(
    *,
    run_name: str,
    workspace: str,
    cluster: str,
    attempt: int,
    rank: int,
    size: int,
    gpus: Sequence[int],
    network: str,
    master_host: str,
    master_port: int,
    hcas: Sequence[str] = (),
    socket_ifname: str | None = None,
) -> dict[str, str]:
    """The injected variables of one worker; the user's own values win over them.

    `gpus` are the indices it was given (none for CPU work), `network` is the run's network id, `hcas` the ports
    it may use as NCCL names them, and `workspace` is `org/name`.
    """
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": master_host,
        "MASTER_PORT": str(master_port),
        "ASTRAEUS_GPU_COUNT": str(len(gpus)),
        "ASTRAEUS_RUN_NAME": run_name,
        "ASTRAEUS_WORKER_NAME": worker_name(run_name, rank),
        "ASTRAEUS_ATTEMPT": str(attempt),
        "ASTRAEUS_WORKSPACE": workspace,
        "ASTRAEUS_CLUSTER": cluster,
        "ASTRAEUS_NETWORK": network,
        # Empty for CPU work: without it CUDA would show the worker every GPU of the machine.
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        **_network_variables(bool(gpus), network, hcas, socket_ifname),
    }


def _network_variables(gpus: bool, network: str, hcas: Sequence[str], socket_ifname: str | None) -> dict[str, str]:
    """What NCCL, PyTorch's use of it, and an NVLink domain need."""
    variables: dict[str, str] = {}
    if gpus:
        variables |= {"NCCL_ASYNC_ERROR_HANDLING": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    if hcas:
        variables["NCCL_IB_HCA"] = "=" + ",".join(hcas)
    if socket_ifname:
        variables["NCCL_SOCKET_IFNAME"] = socket_ifname
    if network.startswith("nvlink:"):
        variables["NVIDIA_IMEX_CHANNELS"] = "0"
    return variables


def gpu_indices(mask: int) -> list[int]:
    """The GPUs of a bitmask, in order."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
