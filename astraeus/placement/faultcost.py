"""What a fault of the network costs each gang: the bandwidth to expect with it, and the same without it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from astraeus.model.machine import Lenient
from astraeus.model.network import Estimate, Rung
from astraeus.placement.bandwidth import rails_estimate, rails_worth_using
from astraeus.placement.fleet import RailKey, keyed_ports
from astraeus.placement.ladder import INFINIBAND
from astraeus.placement.types import Machine

DARK = frozenset({"port_missing", "leaf_missing", "machine_missing", "degraded"})
"""Faults of a machine's own ports: without them the port runs as the machine's others do."""
ASTRAY = frozenset({"miswired", "nic_on_spine"})
"""Cables that lead elsewhere: a gang of one leaf group is within one hop no more."""
UPLINK = frozenset({"uplink_down", "degraded_uplink"})
"""Faults above the leaves, which only gangs that reach beyond those machines can notice."""
ACROSS = (Rung.FABRIC_RACK, Rung.FABRIC)
INFINIBAND_RUNGS = (Rung.LEAF, *ACROSS)


class FaultCost(Lenient):
    """What a fault costs a run: the all-reduce bandwidth `without` it, and `now`."""

    run: str
    without: Estimate
    now: Estimate


@dataclass(frozen=True, slots=True)
class Fault:
    """What the reckoning wants of a finding: its kind, the machines it is at, and what is particular to it."""

    kind: str
    machines: tuple[str, ...]
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Gang:
    """A gang that runs over RDMA: its members and the ports each was given, the least it wants of a port.

    `estimate` is what it can expect now; `factors` and `model` are those the estimate was made with.
    """

    run: str
    rung: Rung
    estimate: Estimate
    members: Sequence[tuple[Machine, Sequence[str]]]
    least: float
    factors: Mapping[str, float]
    model: str

    def reckoned(self, rung: Rung, rates: Sequence[float]) -> Estimate | None:
        """What rails of these rates carry on a rung."""
        return rails_estimate(rung, rates, self.estimate.words, self.factors, self.model)


class GangCosts:
    """What faults cost one gang. The rails of all members are laid out once, for however many faults."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.names = {machine.name for machine, _ in gang.members}
        self.given = {(machine.name, hca) for machine, hcas in gang.members for hca in hcas}
        self.usual: dict[str, float] = {}
        self.port: dict[tuple[str, str], RailKey] = {}
        ports: dict[RailKey, dict[str, float]] = {}
        for machine, _ in gang.members:
            keyed = keyed_ports(machine.ports, INFINIBAND)
            self.usual[machine.name] = max((port.gbps for _, port in keyed if port.up), default=0.0)
            for key, port in keyed:
                ports.setdefault(key, {})[machine.name] = port.gbps if port.up else 0.0
                self.port[machine.name, port.hca] = key
                self.port.setdefault((machine.name, port.device), key)
        best = max(self.usual.values(), default=0.0)
        self.usual = {name: rate or best for name, rate in self.usual.items()}
        self.rails = {
            key: sorted((rates.get(name, 0.0), name) for name in self.names) for key, rates in sorted(ports.items())
        }
        self.none = [(0.0, name) for name in self.names]

    def of(self, fault: Fault) -> FaultCost | None:
        """What a fault costs this gang; None where that is nothing."""
        there = self.names & set(fault.machines)
        if not there or self.gang.rung not in INFINIBAND_RUNGS:
            return None
        if fault.kind in DARK:
            return self._dark(fault, there)
        if fault.kind in ASTRAY:
            return self._astray(fault, there)
        return self._uplink(fault, there) if fault.kind in UPLINK else None

    def _dark(self, fault: Fault, there: Collection[str]) -> FaultCost | None:
        """Where mending it alone gains nothing, the other faults of the same rail count as mended too."""
        keys = set(self.rails) if fault.kind == "machine_missing" else self._keys(fault, there)
        as_is = self._best((), ())
        least = max(self.gang.estimate.busbw_gbps, as_is.busbw_gbps if as_is else 0.0)
        for mended, more in ((there, ""), (self.names, ", once this rail's other ports are mended too")):
            without = self._best(keys, mended)
            if without is not None and without.busbw_gbps > least:
                return self._cost(without.model_copy(update={"basis": without.basis + more}), self.gang.estimate)
        return None

    def _best(self, keys: Collection[RailKey], mended: Collection[str]) -> Estimate | None:
        """What the gang would get if it were placed now, with these machines' ports of these rails mended."""
        rates = [self._rate(key, mended if key in keys else ()) for key in {*self.rails, *keys}]
        rates = [rate for rate in rates if rate > 0 and rate >= self.gang.least]
        return self.gang.reckoned(self.gang.rung, [rates[i] for i in rails_worth_using(rates)])

    def _keys(self, fault: Fault, there: Iterable[str]) -> set[RailKey]:
        device, rail = str(fault.detail.get("device", "")), fault.detail.get("rail")
        found = {self.port[name, device] for name in there if (name, device) in self.port}
        return found or ({(int(rail), 0)} if rail is not None else set())

    def _rate(self, key: RailKey, mended: Collection[str]) -> float:
        """The slowest port of a rail, 0 where one is away, when the ports of these machines run as their others do."""
        rest = next((rate for rate, name in self.rails.get(key, self.none) if name not in mended), None)
        rates = [self.usual[name] for name in mended] + ([] if rest is None else [rest])
        return min(rates, default=0.0)

    def _astray(self, fault: Fault, there: Collection[str]) -> FaultCost | None:
        named = fault.detail.get("devices") or [fault.detail.get("device")]
        hit = [hca for name, hca in self.given if name in there and hca.partition(":")[0] in named]
        if self.gang.rung is not Rung.LEAF or len(self.names) < 2 or not hit:
            return None
        crossing = self.gang.reckoned(Rung.FABRIC_RACK, self._used())
        if crossing is None or crossing.busbw_gbps >= self.gang.estimate.busbw_gbps:
            return None
        words = f"{crossing.basis}, at worst: {', '.join(map(str, named))} crosses the spines"
        return self._cost(self.gang.estimate, crossing.model_copy(update={"basis": words}))

    def _uplink(self, fault: Fault, there: Collection[str]) -> FaultCost | None:
        """Ranks are in the order of leaf groups, so a ring crosses on two cables of each rail."""
        if self.gang.rung not in ACROSS or len(there) == len(self.names):
            return None
        now, slow = self.gang.estimate, float(fault.detail.get("gbps") or 0.0)
        if fault.kind == "uplink_down":
            links, usual = fault.detail.get("links"), fault.detail.get("usual")
            words = f"{now.basis}; all-reduce is no slower, all-to-all has {links} of {usual} links there"
            return self._cost(now, now.model_copy(update={"basis": words}))
        rates = [min(rate, slow) for rate in self._used()] if slow else []
        worst = self.gang.reckoned(self.gang.rung, rates)
        if worst is None or worst.busbw_gbps >= now.busbw_gbps:
            return None
        words = f"{worst.basis}, at worst: where routing puts the ring on this link"
        return self._cost(now, worst.model_copy(update={"basis": words}))

    def _used(self) -> list[float]:
        """Gb/s of the rails that the gang was given, those that are down somewhere left out."""
        keys = {self.port[one] for one in self.given if one in self.port}
        return [rate for key in keys if (rate := self._rate(key, ())) > 0]

    def _cost(self, without: Estimate, now: Estimate) -> FaultCost:
        return FaultCost(run=self.gang.run, without=without, now=now)
