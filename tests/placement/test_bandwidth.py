"""The bandwidth to expect, and what a GPU model is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astraeus.model.network import Rung
from astraeus.placement.bandwidth import FACTORS, nvlink_estimate, rails_estimate, rails_worth_using
from astraeus.placement.kinds import matches_model


def busbw(rung: Rung, rates: list[float]) -> float | None:
    estimate = rails_estimate(rung, rates, "", {})
    return None if estimate is None else estimate.busbw_gbps


def test_the_recipes_numbers() -> None:
    estimate = rails_estimate(Rung.LEAF, [400.0] * 8, "one leaf switch", {})
    assert estimate is not None
    assert (estimate.busbw_gbps, estimate.basis) == (368.4, "8 × 400 Gb/s rails, × 0.92")
    assert busbw(Rung.FABRIC, [400.0] * 8) == 313.2
    assert busbw(Rung.ROCE, [400.0] * 8) == 320.0
    assert busbw(Rung.ETHERNET, [100.0]) == 5.6
    assert busbw(Rung.LEAF, []) is None


def test_every_factor_has_a_source() -> None:
    assert set(FACTORS) == {rung for rung in Rung if rung >= Rung.LEAF}
    assert all(measured.source for measured in FACTORS.values())


def test_nvlink_is_known_by_model_only() -> None:
    known = nvlink_estimate(Rung.MACHINE, "NVIDIA H100 80GB HBM3", "", {})
    assert known is not None
    assert known.busbw_gbps == 475.0
    assert nvlink_estimate(Rung.MACHINE, "NVIDIA H100 PCIe", "", {}) is None
    assert nvlink_estimate(Rung.NVLINK, "NVIDIA H100 80GB HBM3", "", {}) is None
    own = nvlink_estimate(Rung.MACHINE, "NVIDIA B200", "", {"machine": 700.0})
    assert own is not None
    assert own.busbw_gbps == 700.0


@pytest.mark.parametrize(
    ("wanted", "model", "matches"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("nvidia h100 80gb hbm3", "NVIDIA H100 80GB HBM3", True),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("H100 80GB", "NVIDIA H100 80GB HBM3", True),
        ("H10", "NVIDIA H100 80GB HBM3", False),
        ("H100", "NVIDIA GH100", False),
        ("H100 HBM3", "NVIDIA H100 80GB HBM3", False),
        ("", "NVIDIA H100", False),
    ],
)
def test_a_model_is_equal_or_a_word_of_the_name(wanted: str, model: str, matches: bool) -> None:
    assert matches_model(wanted, model) is matches


@given(st.lists(st.sampled_from((100.0, 200.0, 360.0, 400.0)), min_size=1, max_size=8))
def test_dropping_rails_never_lowers_the_estimate(rates: list[float]) -> None:
    kept = [rates[i] for i in rails_worth_using(rates)]
    assert len(kept) * min(kept) >= len(rates) * min(rates)
    assert all(rate >= min(kept) for rate in kept)
