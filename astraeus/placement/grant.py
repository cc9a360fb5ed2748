"""What a placed gang got: its network in words and numbers, and each member's GPUs and ports."""

from collections.abc import Mapping

import numpy as np

from astraeus.model.network import Estimate, NetworkPlace, Rung
from astraeus.placement.bandwidth import nvlink_estimate, rails_estimate, rails_worth_using
from astraeus.placement.choose import Found
from astraeus.placement.fleet import Fleet, Ints
from astraeus.placement.holdings import Taking
from astraeus.placement.ladder import ETHERNET, INFINIBAND, LEVELS, ROCE
from astraeus.placement.types import Ask, Grant, Holding, Member

Rails = tuple[int | None, tuple[int, ...]]
"""The link that members reach each other by, and the rails of it that all of them are given."""


def grant_of(ask: Ask, found: Found, taking: Taking, fleet: Fleet, factors: Mapping[str, float]) -> Grant:
    """The grant of a gang on the room that was found for it."""
    link, rails = used = _rails(found, fleet)
    cpu, memory, names = found.shape.worker.cpu, int(found.shape.worker.memory), fleet.names
    patterns = fleet.ports.pattern[taking.rows].tolist()
    hcas = {pattern: () if link is None else fleet.hcas(pattern, link, rails) for pattern in set(patterns)}
    places = zip(taking.rows.tolist(), taking.masks.tolist(), patterns, strict=True)
    members = tuple(
        Member(rank, names[row], mask, cpu, memory, hcas[pattern]) for rank, (row, mask, pattern) in enumerate(places)
    )
    return Grant(ask.claim, ask.run_uid, ask.attempt, found.rung, place_of(found, fleet, factors, used), members)


def held_by(grant: Grant, ask: Ask, now: float) -> tuple[Holding, ...]:
    """What a claim holds from its grant on, until its time limit."""
    limit = ask.time_limit_seconds
    return tuple(
        Holding(
            claim=grant.claim,
            run_uid=grant.run_uid,
            run_name=ask.run_name,
            workspace=ask.workspace,
            attempt=grant.attempt,
            machine=member.machine,
            gpu_mask=member.gpu_mask,
            cpu_cores=member.cpu_cores,
            memory_bytes=member.memory_bytes,
            priority=ask.priority,
            preemptible=ask.preemptible,
            started_at=now,
            ends_at=None if limit is None else now + limit,
            time_limit_seconds=limit,
        )
        for member in grant.members
    )


def place_of(found: Found, fleet: Fleet, factors: Mapping[str, float], used: Rails | None = None) -> NetworkPlace:
    """The network a gang has there, in the words users read."""
    level = LEVELS[found.level]
    words = _spread_words(found, fleet) if found.rung is Rung.FABRIC else level.words
    key = fleet.domains[found.level].keys[found.domain]
    return NetworkPlace(
        network=level.network.format(*key), words=words, estimate=estimate_of(found, words, fleet, factors, used)
    )


def estimate_of(
    found: Found, words: str, fleet: Fleet, factors: Mapping[str, float], used: Rails | None = None
) -> Estimate | None:
    """The bandwidth to expect; None for work without GPUs, for one GPU, and where nothing is known.

    `used` are the rails that the members are given, where they are known already.
    """
    gpus = found.shape.worker.gpus
    if gpus * found.shape.size < 2:
        return None
    models = fleet.model[found.rows]
    alike = bool((models == models[0]).all())
    model = fleet.models[models[0]] if alike else ""
    if found.rung in (Rung.MACHINE, Rung.NVLINK):
        return nvlink_estimate(found.rung, model, words, factors) if alike else None
    if found.rung is Rung.LEAF:
        words = "one leaf switch"
    if LEVELS[found.level].link == ETHERNET:
        return rails_estimate(found.rung, _ethernet(found, fleet), words, factors, model)
    link, rails = used or _rails(found, fleet)
    if link is None:
        return None
    slowest = _slowest(found.rows, link, rails, fleet)
    key = ("estimate", found.rung, slowest, words, model, *factors.items())
    if key not in fleet.memo:
        fleet.memo[key] = rails_estimate(found.rung, slowest, words, factors, model)
    estimate: Estimate | None = fleet.memo[key]
    return estimate


def _rails(found: Found, fleet: Fleet) -> Rails:
    """The link and rails that all members are given: those all have, without those that slow the rest down."""
    for link in _links(found, fleet):
        masks = found.shape.kind.rails[link][found.rows]
        common = int(np.bitwise_and.reduce(masks))
        rails = tuple(rail for rail in range(len(fleet.rails)) if common >> rail & 1)
        if rails:
            slowest = _slowest(found.rows, link, rails, fleet)
            if min(slowest) < max(slowest):
                rails = tuple(rails[i] for i in rails_worth_using(slowest))
            return link, rails
    return None, ()


def _links(found: Found, fleet: Fleet) -> tuple[int, ...]:
    """RDMA links by which all members can reach each other."""
    link = LEVELS[found.level].link
    if found.shape.worker.interconnect == "ethernet" or link == ETHERNET:
        return ()
    if link is not None:
        return (link,)
    machines = [fleet.machines[row] for row in found.rows.tolist()]
    together = len(machines) == 1
    links = []
    if together or (machines[0].fabric and len({machine.fabric for machine in machines}) == 1):
        links.append(INFINIBAND)
    if together or (machines[0].roce and len({machine.roce for machine in machines}) == 1):
        links.append(ROCE)
    return tuple(links)


def _slowest(rows: Ints, link: int, rails: tuple[int, ...], fleet: Fleet) -> tuple[float, ...]:
    patterns = frozenset(fleet.ports.pattern[rows].tolist())
    key = ("slowest", patterns, link, rails)
    if key not in fleet.memo:
        slowest = fleet.ports.rates[link][sorted(patterns)].min(axis=0).tolist()
        fleet.memo[key] = tuple(slowest[rail] for rail in rails)
    rates: tuple[float, ...] = fleet.memo[key]
    return rates


def _ethernet(found: Found, fleet: Fleet) -> list[float]:
    """The slowest member's fastest interface, where every member's is known."""
    ports = [np.where(fleet.up(link, found.rows), fleet.rates(link, found.rows), 0) for link in (ROCE, ETHERNET)]
    best = np.concatenate(ports, axis=1).max(axis=1, initial=0)
    slowest = float(best.min())
    return [slowest] if slowest > 0 else []


def _spread_words(found: Found, fleet: Fleet) -> str:
    machines = [fleet.machines[row] for row in found.rows.tolist()]
    leaves = {machine.leaf for machine in machines}
    spines = {machine.spine for machine in machines}
    if None in leaves or len(leaves) == 1:
        return LEVELS[found.level].words
    if None in spines:
        return f"{len(leaves)} leaves on one InfiniBand fabric"
    if len(spines) == 1:
        return f"{len(leaves)} leaves under one spine group"
    return f"{len(leaves)} leaves across {len(spines)} spine groups"
