from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from astraeus.ledger.environment import gpu_indices, worker_environment

PLACE: dict[str, Any] = {
    "run_name": "resnet-64gpu",
    "workspace": "acme/vision",
    "cluster": "lab-a",
    "attempt": 2,
    "rank": 5,
    "size": 8,
    "gpus": range(8),
    "network": "leaf:leaf-r0-7-g0",
    "master_host": "10.0.0.1",
    "master_port": 20007,
}


def test_a_gpu_worker_on_infiniband() -> None:
    variables = worker_environment(**PLACE, hcas=["mlx5_0:1", "mlx5_1:1"], socket_ifname="eth0")
    assert variables == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20007",
        "ASTRAEUS_GPU_COUNT": "8",
        "ASTRAEUS_RUN_NAME": "resnet-64gpu",
        "ASTRAEUS_WORKER_NAME": "resnet-64gpu-5",
        "ASTRAEUS_ATTEMPT": "2",
        "ASTRAEUS_WORKSPACE": "acme/vision",
        "ASTRAEUS_CLUSTER": "lab-a",
        "ASTRAEUS_NETWORK": "leaf:leaf-r0-7-g0",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
        "NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
        "NCCL_SOCKET_IFNAME": "eth0",
    }


def test_a_cpu_worker_sees_no_gpu_and_no_nccl() -> None:
    variables = worker_environment(**{**PLACE, "gpus": []})
    assert variables["CUDA_VISIBLE_DEVICES"] == ""
    assert variables["ASTRAEUS_GPU_COUNT"] == "0"
    assert not [name for name in variables if "NCCL" in name]


def test_an_nvlink_domain_brings_imex_channel_zero() -> None:
    assert worker_environment(**{**PLACE, "network": "nvlink:d-1"})["NVIDIA_IMEX_CHANNELS"] == "0"
    assert "NVIDIA_IMEX_CHANNELS" not in worker_environment(**PLACE)


@given(st.sets(st.integers(0, 62)))
def test_indices_are_the_bits_of_the_mask(gpus: set[int]) -> None:
    assert gpu_indices(sum(1 << gpu for gpu in gpus)) == sorted(gpus)
