"""Random small fleets, loads and queues for property tests."""

from typing import Any

from hypothesis import strategies as st
from placement.drawing import GIB, ask

from astraeus.model.machine import FABRIC, LEAF, RACK, ROCE, SPINE, Nic
from astraeus.placement.types import Allotment, Ask, Holding, Machine, Snapshot

RAILS = 3


@st.composite
def machines(draw: Any) -> tuple[Machine, ...]:
    count = draw(st.integers(1, 14))
    return tuple(_machine(draw, i) for i in range(count))


LINKS = ("infiniband", "infiniband", "infiniband", "roce", "ethernet")
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")


def _machine(draw: Any, i: int) -> Machine:
    leaf, link, model, health = draw(
        st.tuples(st.integers(0, 3), st.sampled_from(LINKS), st.sampled_from(MODELS), st.integers(0, 15))
    )
    faults = draw(st.integers(0, 63))
    labels = {LEAF: f"l{leaf}", SPINE: f"s{leaf // 2}", FABRIC: f"f{leaf // 3}", RACK: f"r{i % 3}"}
    if link != "infiniband":
        labels = {RACK: f"r{i % 3}", ROCE: "net"} if link == "roce" else {RACK: f"r{i % 3}"}
    return Machine(
        name=f"m{i}",
        gpus=2 if health == 5 else 4,
        gpu_model=model,
        cpu_cores=32,
        memory_bytes=64 * GIB,
        labels={} if health == 4 else labels,
        ports=tuple(
            Nic(
                device=f"mlx5_{rail}",
                rail=rail,
                gbps=200 if faults == 8 + rail or faults == 15 else 400,
                link=link,
                up=faults != rail and faults != 4,
            )
            for rail in range(RAILS)
        ),
        broken=int(health == 3),
        doubtful=2 * (health == 2),
        refusal={0: "down", 1: "cordoned"}.get(health),
    )


@st.composite
def holdings(draw: Any, fleet: tuple[Machine, ...], most: int = 8) -> tuple[Holding, ...]:
    """Runs that hold disjoint GPUs, some over several machines, some stopping, some with a time limit."""
    free = {machine.name: (1 << machine.gpus) - 1 for machine in fleet}
    held: list[Holding] = []
    for number in range(draw(st.integers(0, most))):
        priority, kind, started, mask = draw(
            st.tuples(st.integers(-2, 2), st.integers(0, 15), st.integers(0, 3), st.integers(1, 15))
        )
        values = {
            "priority": priority,
            "preemptible": kind % 4 != 3,
            "started_at": float(-started),
            "ends_at": (None, 50.0, 100.0, None)[kind // 4],
            "stopping": kind % 4 == 2 and kind > 7,
        }
        names = draw(st.lists(st.sampled_from(sorted(free)), min_size=1, max_size=4, unique=True))
        for name in names:
            mine = mask & free[name]
            if mine:
                free[name] &= ~mine
                held.append(
                    Holding(
                        claim=1000 + number,
                        run_uid=f"uid-r{number}",
                        run_name=f"r{number}",
                        workspace=WORKSPACES[number % 3],
                        attempt=1,
                        machine=name,
                        gpu_mask=mine,
                        cpu_cores=float(mine.bit_count()),
                        memory_bytes=mine.bit_count() * GIB,
                        **values,
                    )
                )
    return tuple(held)


@st.composite
def asks(draw: Any, most: int = 6, patient: bool = True) -> tuple[Ask, ...]:
    return tuple(_ask(draw, place + 1, patient) for place in range(draw(st.integers(1, most))))


MODELS_ASKED = ([], [], ["H100"], ["a100", "H100"])
INTERCONNECTS = ("any", "any", "infiniband", "rdma", "ethernet")
WITHIN = ("any", "any", "fabric", "leaf", "rack", "rdma", "machine")


def _ask(draw: Any, place: int, patient: bool) -> Ask:
    size, per, least, bits = draw(
        st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(0, 4), st.integers(0, 255))
    )
    models, link, within, limit, priority, at = draw(
        st.tuples(
            st.sampled_from(MODELS_ASKED),
            st.sampled_from(INTERCONNECTS),
            st.sampled_from(WITHIN),
            st.sampled_from((None, 40, 90, 1000)),
            st.integers(-2, 2),
            st.integers(0, 3),
        )
    )
    shape: dict[str, Any] = {"machines": size, "gpus": size * per}
    if per and 0 < least <= per:
        shape = {"gpus": size * per, "least": least}
    return ask(
        f"q{place}",
        place,
        **shape,
        models=models,
        healthy=bool(bits & 1),
        cpu=(0, 1, 8, 0)[bits >> 1 & 3],
        memory=GIB * (bits >> 3 & 1),
        link=link,
        gbps=400 if bits >> 4 & 3 == 3 else 0,
        within=within,
        priority=priority,
        at=float(at),
        patience=60 if patient and bits >> 6 & 1 else 0,
        limit=limit,
        avoid=("m0",) if bits >> 7 else (),
        workspace=WORKSPACES[bits % 3],
    )


WORKSPACES = ("acme/vision", "acme/ml", "else/ml")


@st.composite
def allotments(draw: Any, *, quotas: bool = True, shares: bool = True) -> dict[str, Allotment]:
    """What some of the workspaces are due."""
    found = {}
    for name in draw(st.sets(st.sampled_from(WORKSPACES), min_size=1)):
        quota = draw(st.none() | st.integers(0, 20)) if quotas else None
        share = draw(st.none() | st.sampled_from((0.5, 1.0, 3.0))) if shares else None
        found[name] = Allotment(quota, share, float(draw(st.integers(0, 3))) * 50, -10.0)
    return found


@st.composite
def snapshots(draw: Any, patient: bool = True, held: int = 8, waiting: int = 6) -> Snapshot:
    fleet = draw(machines())
    return Snapshot("lab-a", fleet, draw(holdings(fleet, held)), draw(asks(waiting, patient)))
