"""A fault's cost is what mending it would give back, to gangs that notice it and to no other."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astraeus.model.machine import Nic
from astraeus.model.network import Estimate, Rung
from astraeus.placement.bandwidth import rails_estimate
from astraeus.placement.faultcost import ASTRAY, DARK, UPLINK, Fault, FaultCost, Gang, GangCosts
from astraeus.placement.types import Machine

RAILS = 8
HCAS = [f"mlx5_{i}:1" for i in range(RAILS)]


def machine(name: str, slow: dict[int, float] | None = None, absent: Sequence[int] = ()) -> Machine:
    rates = dict.fromkeys(range(RAILS), 400.0) | (slow or {})
    ports = tuple(
        Nic(device=f"mlx5_{i}", rail=i, gbps=rate or 400.0, up=rate > 0) for i, rate in rates.items() if i not in absent
    )
    return Machine(name, 8, "H100", 96, 2**40, ports=ports)


def gang(*machines: Machine, rung: Rung = Rung.LEAF, hcas: Sequence[str] = HCAS, least: float = 0) -> Gang:
    rates = []
    for hca in hcas:
        ports = [next((port for port in one.ports if port.hca == hca), None) for one in machines]
        rates.append(min(port.gbps if port and port.up else 0.0 for port in ports))
    now = rails_estimate(rung, [rate for rate in rates if rate], "", {}) or Estimate(busbw_gbps=0, words="", basis="")
    return Gang("r", rung, now, [(one, hcas) for one in machines], least, {}, "")


def cost(kind: str, found: Gang, *at: str, **detail: object) -> tuple[float, float] | None:
    told = GangCosts(found).of(Fault(kind, at, detail))
    return told and (told.without.busbw_gbps, told.now.busbw_gbps)


def test_a_missing_port() -> None:
    assert cost("port_missing", gang(machine("a", {3: 0}), machine("b")), "a", device="mlx5_3") == (368.4, 322.4)


def test_a_port_that_the_agent_does_not_list_is_known_by_its_rail() -> None:
    found = gang(machine("a", absent=[3]), machine("b"))
    assert cost("port_missing", found, "a", device="mlx5_3", rail=3) == (368.4, 322.4)
    assert cost("port_missing", found, "a", device="mlx5_3") is None


def test_a_slow_port_slows_every_rail_of_a_gang_that_keeps_it() -> None:
    assert cost("degraded", gang(machine("a", {3: 200}), machine("b")), "a", device="mlx5_3") == (368.4, 184.2)


def test_a_rail_that_was_left_out_at_the_grant_is_what_the_fault_costs() -> None:
    given_seven = [hca for hca in HCAS if hca != "mlx5_3:1"]
    found = gang(machine("a", {3: 200}), machine("b"), hcas=given_seven)
    assert cost("degraded", found, "a", device="mlx5_3") == (368.4, 322.4)


def test_two_faults_of_one_rail_are_mended_together() -> None:
    found = gang(machine("a", {3: 0}), machine("b", {3: 0}))
    told = GangCosts(found).of(Fault("port_missing", ("a",), {"device": "mlx5_3"}))
    assert told is not None
    assert (told.without.busbw_gbps, told.now.busbw_gbps) == (368.4, 322.4)
    assert told.without.basis.endswith("once this rail's other ports are mended too")


def test_faults_of_two_rails_are_told_one_by_one() -> None:
    found = gang(machine("a", {3: 0, 4: 0}), machine("b"))
    assert cost("port_missing", found, "a", device="mlx5_3") == (322.4, 276.3)


def test_a_machine_that_is_away_leaves_nothing() -> None:
    found = gang(machine("a", dict.fromkeys(range(RAILS), 0.0)), machine("b"))
    assert cost("machine_missing", found, "a") == (368.4, 0)


def test_a_leaf_that_is_away() -> None:
    found = gang(machine("a", {3: 0}), machine("b", {3: 0}), machine("c", {3: 0}))
    assert cost("leaf_missing", found, "a", "b", "c", device="mlx5_3", rail=3) == (368.4, 322.4)


def test_a_port_below_what_the_run_asks_for_is_no_gain() -> None:
    slow = dict.fromkeys(range(RAILS), 100.0)
    found = gang(machine("a", slow | {3: 0}), machine("b", slow), hcas=HCAS[:3], least=200)
    assert cost("port_missing", found, "a", device="mlx5_3") is None


def test_a_cable_that_leads_elsewhere_costs_the_leaf_group_its_one_hop() -> None:
    found = gang(machine("a"), machine("b"))
    assert cost("miswired", found, "a", devices=["mlx5_2", "mlx5_3"]) == (368.4, 313.2)
    assert cost("nic_on_spine", found, "a", device="mlx5_2") == (368.4, 313.2)
    assert cost("miswired", found, "c", device="mlx5_2") is None
    across = gang(machine("a"), machine("b"), rung=Rung.FABRIC)
    assert cost("miswired", across, "a", device="mlx5_2") is None
    without = gang(machine("a"), machine("b"), hcas=HCAS[3:])
    assert cost("miswired", without, "a", device="mlx5_2") is None


def test_faults_above_the_leaves_are_noticed_by_gangs_that_reach_across() -> None:
    found = gang(machine("a"), machine("b"), rung=Rung.FABRIC)
    assert cost("uplink_down", found, "a", links=31, usual=32) == (313.2, 313.2)
    assert cost("degraded_uplink", found, "a", gbps=100.0) == (313.2, 78.3)
    assert cost("uplink_down", found, "a", "b", links=31, usual=32) is None
    assert cost("uplink_down", gang(machine("a"), machine("b")), "a", links=31, usual=32) is None


@pytest.mark.parametrize("kind", ["errors", "congested", "unnamed", "no_home"])
def test_what_has_no_price_is_not_priced(kind: str) -> None:
    assert cost(kind, gang(machine("a"), machine("b"), rung=Rung.FABRIC), "a") is None


def test_gangs_over_ethernet_do_not_notice() -> None:
    assert (
        cost("port_missing", gang(machine("a", {3: 0}), machine("b"), rung=Rung.ETHERNET), "a", device="mlx5_3") is None
    )


RATES = st.lists(st.sampled_from([0.0, 100.0, 200.0, 400.0]), min_size=RAILS, max_size=RAILS)


@given(
    st.lists(RATES, min_size=2, max_size=4),
    st.sampled_from(sorted(DARK | ASTRAY | UPLINK)),
    st.sampled_from([Rung.LEAF, Rung.FABRIC_RACK, Rung.FABRIC]),
    st.sets(st.integers(0, 3), min_size=1),
    st.integers(0, RAILS - 1),
    st.integers(1, RAILS),
)
def test_no_fault_ever_pays(
    rates: list[list[float]], kind: str, rung: Rung, at: set[int], rail: int, given_rails: int
) -> None:
    found = gang(
        *(machine(f"m{i}", dict(enumerate(own))) for i, own in enumerate(rates)), rung=rung, hcas=HCAS[:given_rails]
    )
    fault = Fault(kind, tuple(f"m{i}" for i in at), {"device": f"mlx5_{rail}", "rail": rail, "gbps": 100.0})
    told: FaultCost | None = GangCosts(found).of(fault)
    assert told is None or told.without.busbw_gbps >= told.now.busbw_gbps
