"""Labels of others as ours: topograph's two families, NVIDIA's GPU clique, GKE, AWS, OCI.

Ours win where a machine has both. The clouds' networks are Ethernet underneath, so their widest tier is a RoCE network.
"""

from collections.abc import Mapping

from astraeus.model.machine import FABRIC, LEAF, NVLINK, RACK, ROCE, SPINE

TOPOGRAPH = "fabric.topograph.run/tier-"
TOPOGRAPH_OLD = "network.topology.nvidia.com/"
TOPOGRAPH_DOMAIN = "accelerator.topograph.run/domain"
TOPOGRAPH_SUBDOMAIN = "accelerator.topograph.run/sub-domain"
GKE = "cloud.google.com/gce-topology-"
AWS = "topology.k8s.aws/"
OCI = "oci.oraclecloud.com/host."
CLIQUE = "nvidia.com/gpu.clique"

SOURCES: Mapping[str, tuple[str, ...]] = {
    LEAF: (
        f"{TOPOGRAPH}0",
        f"{TOPOGRAPH_OLD}leaf",
        f"{AWS}network-node-layer-3",
        f"{OCI}local_block_id",
        f"{GKE}subblock",
    ),
    SPINE: (
        f"{TOPOGRAPH}1",
        f"{TOPOGRAPH_OLD}spine",
        f"{AWS}network-node-layer-2",
        f"{OCI}network_block_id",
        f"{GKE}block",
    ),
    FABRIC: (f"{TOPOGRAPH}2", f"{TOPOGRAPH_OLD}core", f"{TOPOGRAPH_OLD}datacenter"),
    ROCE: (f"{AWS}network-node-layer-1", f"{OCI}hpc_island_id", f"{GKE}block"),
    RACK: (f"{OCI}rack_id",),
    NVLINK: (TOPOGRAPH_DOMAIN, f"{TOPOGRAPH_OLD}accelerator", CLIQUE, f"{AWS}ultraserver-id"),
}
"""For each of our labels those of others that mean it, the first that is there counts."""

OURS = (LEAF, SPINE, FABRIC, ROCE, RACK, NVLINK)
FOREIGN = frozenset(key for keys in SOURCES.values() for key in keys)


def canonical(labels: Mapping[str, str]) -> dict[str, str]:
    """A machine's labels with ours added where others say the same."""
    found = dict(labels)
    if FOREIGN.isdisjoint(labels):
        return found
    for ours, sources in SOURCES.items():
        value = next((labels[key] for key in sources if labels.get(key)), None)
        if value and not labels.get(ours):
            found[ours] = value
    domain, part = labels.get(TOPOGRAPH_DOMAIN), labels.get(TOPOGRAPH_SUBDOMAIN)
    if domain and part and not labels.get(NVLINK):
        # Two machines of one rack that was partitioned are in two NVLink domains.
        found[NVLINK] = f"{domain}.{part}"
    return found


def effective(labels: Mapping[str, str], placed: Mapping[str, str | None]) -> dict[str, str]:
    """A machine's own labels under what a scan says; None takes a label away."""
    found = canonical(labels)
    for key, value in placed.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found
