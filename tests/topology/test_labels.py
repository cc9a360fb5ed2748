"""Labels of others are read as ours, and ours win."""

from typing import Any

import pytest

from astraeus.model.machine import FABRIC, LEAF, NVLINK, RACK, ROCE, SPINE
from astraeus.topology.labels import canonical, effective

TOPOGRAPH = {f"fabric.topograph.run/tier-{i}": value for i, value in enumerate(("l1", "s1", "f1"))}
OLD = {
    f"network.topology.nvidia.com/{key}": value for key, value in {"leaf": "l1", "spine": "s1", "core": "f1"}.items()
}
AWS = {f"topology.k8s.aws/network-node-layer-{i}": value for i, value in ((1, "top"), (2, "mid"), (3, "near"))}
GKE = {
    f"cloud.google.com/gce-topology-{key}": value
    for key, value in {"block": "b", "subblock": "sb", "host": "h"}.items()
}
OCI = {
    f"oci.oraclecloud.com/host.{key}": value
    for key, value in {"network_block_id": "nb", "local_block_id": "lb", "rack_id": "r", "hpc_island_id": "i"}.items()
}


@pytest.mark.parametrize(
    ("labels", "ours"),
    [
        (TOPOGRAPH, {LEAF: "l1", SPINE: "s1", FABRIC: "f1"}),
        (OLD, {LEAF: "l1", SPINE: "s1", FABRIC: "f1"}),
        (AWS, {LEAF: "near", SPINE: "mid", ROCE: "top"}),
        (GKE, {LEAF: "sb", SPINE: "b", ROCE: "b"}),
        (OCI, {LEAF: "lb", SPINE: "nb", ROCE: "i", RACK: "r"}),
        ({"nvidia.com/gpu.clique": "uuid.7"}, {NVLINK: "uuid.7"}),
        ({"network.topology.nvidia.com/accelerator": "nvl1"}, {NVLINK: "nvl1"}),
        ({"accelerator.topograph.run/domain": "d", "accelerator.topograph.run/sub-domain": "2"}, {NVLINK: "d.2"}),
        ({"topology.k8s.aws/ultraserver-id": "us-1"}, {NVLINK: "us-1"}),
        ({"zone": "a"}, {}),
        ({LEAF: "mine", **OLD}, {LEAF: "mine", SPINE: "s1", FABRIC: "f1"}),
    ],
)
def test_families(labels: dict[str, str], ours: dict[str, str]) -> None:
    found = canonical(labels)
    assert {key: value for key, value in found.items() if key not in labels or key == LEAF} == ours
    assert found.items() >= labels.items()


def test_a_scan_wins_and_can_take_away() -> None:
    placed: dict[str, Any] = {LEAF: None, FABRIC: "sm-1"}
    assert effective({LEAF: "agent", RACK: "r1"}, placed) == {FABRIC: "sm-1", RACK: "r1"}
    assert effective({}, {}) == {}
