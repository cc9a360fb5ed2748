"""The rules of fit said again, slowly and plainly, to check the planner against."""

from itertools import combinations

from astraeus.model.network import Rung
from astraeus.model.spec import AnyMachine
from astraeus.placement.types import Ask, Machine, Snapshot

LOOSEST = {"machine": 1, "nvlink_domain": 2, "leaf": 3, "rack": 4, "fabric": 5, "rdma": 7, "any": 9}
LINKS = {
    "any": range(1, 10),
    "ethernet": (1, 8, 9),
    "rdma": range(1, 8),
    "infiniband": range(1, 6),
    "nvlink": (1, 2),
}


def allowed_rungs(ask: Ask) -> list[Rung]:
    within = LOOSEST[ask.resources.topology.keep_within]
    return [rung for rung in Rung if rung <= within and rung in LINKS[ask.resources.network.interconnect]]


def shapes_of(ask: Ask) -> list[tuple[int, int]]:
    """All (machines, GPUs each) the run may have."""
    gpus = ask.resources.gpu_requests
    if ask.resources.machines is not None:
        return [(ask.resources.machines, gpus.count // ask.resources.machines)]
    if not gpus.count:
        return [(1, 0)]
    least = gpus.min_per_machine or 1
    return [(k, gpus.count // k) for k in range(1, gpus.count + 1) if gpus.count % k == 0 and gpus.count // k >= least]


def good_rails(machine: Machine, link: str, least: float) -> set[int]:
    return {nic.rail for nic in machine.ports if nic.link == link and nic.up and nic.gbps >= least}


def machine_fits(machine: Machine, ask: Ask, snapshot: Snapshot, gpus: int | None = None) -> bool:
    resources = ask.resources
    gpus = shapes_of(ask)[0][1] if gpus is None else gpus
    held = [h for h in snapshot.holdings if h.machine == machine.name]
    free = (1 << machine.gpus) - 1 & ~machine.broken
    for holding in held:
        free &= ~holding.gpu_mask
    if resources.gpu_requests.healthy_only:
        free &= ~machine.doubtful
    times = gpus if resources.gpu_requests.count else 1
    cpu = machine.cpu_cores - sum(h.cpu_cores for h in held)
    memory = machine.memory_bytes - sum(h.memory_bytes for h in held)
    models = [model.lower() for model in resources.gpu_requests.models]
    words = machine.gpu_model.lower().replace("-", " ").split()
    selection = resources.machine_selection
    assert isinstance(selection, AnyMachine)
    rails = {link: good_rails(machine, link, resources.network.min_gbps) for link in ("infiniband", "roce", "ethernet")}
    wanted = {
        "any": set().union(*rails.values()) if resources.network.min_gbps else {0},
        "ethernet": rails["ethernet"] | rails["roce"] if resources.network.min_gbps else {0},
        "rdma": rails["infiniband"] | rails["roce"],
        "infiniband": rails["infiniband"],
    }[resources.network.interconnect]
    return bool(
        machine.refusal is None
        and free.bit_count() >= gpus
        and cpu + 1e-6 >= resources.per_gpu.cpu_cores * times
        and memory >= resources.per_gpu.memory_bytes * times
        and (not models or not gpus or any(model in words for model in models))
        and all(machine.labels.get(key) == value for key, value in selection.match_labels.items())
        and wanted
    )


def _domain(rung: Rung, machine: Machine) -> list[object]:
    leaf = (machine.fabric, machine.leaf) if machine.leaf else None
    return {
        Rung.MACHINE: [machine.name],
        Rung.NVLINK: [machine.nvlink_domain],
        Rung.LEAF: [leaf],
        Rung.FABRIC_RACK: [(machine.fabric, machine.rack) if machine.fabric and machine.rack else None],
        Rung.FABRIC: [machine.fabric],
        Rung.ROCE_LEAF: [
            ("leaf", machine.roce, machine.leaf) if machine.roce and machine.leaf else None,
            ("rack", machine.roce, machine.rack) if machine.roce and machine.rack else None,
        ],
        Rung.ROCE: [machine.roce],
        Rung.ETHERNET_RACK: [machine.rack],
        Rung.ETHERNET: ["all"],
    }[rung]


def fits_on(rung: Rung, ask: Ask, snapshot: Snapshot) -> bool:
    """Whether some whole gang of the run fits on a rung."""
    link = {3: "infiniband", 4: "infiniband", 5: "infiniband", 6: "roce", 7: "roce"}.get(rung)
    least = ask.resources.network.min_gbps
    for size, gpus in shapes_of(ask):
        if (size == 1) != (rung is Rung.MACHINE):
            continue
        domains: dict[object, list[Machine]] = {}
        for machine in snapshot.machines:
            if not machine_fits(machine, ask, snapshot, gpus):
                continue
            if link and not good_rails(machine, link, least):
                continue
            if rung >= 8 and least and not good_rails(machine, "ethernet", least) | good_rails(machine, "roce", least):
                continue
            for domain in _domain(rung, machine):
                if domain is not None:
                    domains.setdefault(domain, []).append(machine)
        for members in domains.values():
            if len(members) >= size and _share_a_rail(members, size, link, least):
                return True
    return False


def _share_a_rail(members: list[Machine], size: int, link: str | None, least: float) -> bool:
    if link is None:
        return True
    rails = [good_rails(machine, link, least) for machine in members]
    return any(set.intersection(*chosen) for chosen in combinations(rails, size))
