"""The all-reduce bandwidth to expect on a rung: data with sources, and the reckoning. Values are bus bandwidths.

NCCL splits a collective evenly over its channels, so the slowest rail of the slowest machine sets the pace of all.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from astraeus.model.network import Estimate, Rung


@dataclass(frozen=True, slots=True)
class Measured:
    """A number and where it comes from."""

    value: float
    source: str


FACTORS: Mapping[Rung, Measured] = {
    Rung.LEAF: Measured(0.921, "46 of 50 GB/s on one NDR rail (nccl-tests#290); NCCL's own ring constant is 120/128"),
    Rung.FABRIC_RACK: Measured(0.783, "cautious end of 300-350 GB/s on 8x400 across spines (nccl-tests#283)"),
    Rung.FABRIC: Measured(0.783, "cautious end of 300-350 GB/s on 8x400 across spines (nccl-tests#283)"),
    Rung.ROCE_LEAF: Measured(0.80, "320 of 400 GB/s on 4 H100 machines over RoCE (nccl#1221)"),
    Rung.ROCE: Measured(0.80, "320 of 400 GB/s on 4 H100 machines over RoCE (nccl#1221)"),
    Rung.ETHERNET_RACK: Measured(0.45, "5.2-6 GB/s over 100 GbE sockets (nccl#450, nccl#398)"),
    Rung.ETHERNET: Measured(0.45, "5.2-6 GB/s over 100 GbE sockets (nccl#450, nccl#398)"),
}
"""Share of the sum of the rails' line rates that an all-reduce reaches."""

NVLINK_MACHINE: Mapping[str, Measured] = {
    "a100": Measured(235, "8xA100, 235-240 GB/s (ml-engineering)"),
    "h100": Measured(475, "8xH100 with NVLS, 475-480 GB/s (nccl-tests#212)"),
    "h200": Measured(475, "8xH200 with NVLS, 475 GB/s (nccl-tests#272)"),
    "gb200": Measured(840, "GB200 NVL72, 835-847 GB/s (coreweave/nccl-tests#43)"),
}
NVLINK_DOMAIN: Mapping[str, Measured] = {
    "gb200": Measured(840, "GB200 NVL72, 835-847 GB/s from 4 GiB on (coreweave/nccl-tests#43)"),
}
MODEL = re.compile(r"(a|b|h|l|v|gb|gh|mi)\d{2,3}[a-z]?")
NVLINK_BASIS = "NVLink, measured elsewhere"

DROP_BELOW = 7 / 8
"""A rail slower than this share of the others is left out where that gives more."""

OVERRIDE_NAMES: Mapping[Rung, tuple[str, ...]] = {
    Rung.MACHINE: ("machine",),
    Rung.NVLINK: ("nvlink",),
    Rung.LEAF: ("leaf",),
    Rung.FABRIC_RACK: ("fabric_rack", "fabric"),
    Rung.FABRIC: ("fabric",),
    Rung.ROCE_LEAF: ("roce_leaf", "roce"),
    Rung.ROCE: ("roce",),
    Rung.ETHERNET_RACK: ("ethernet_rack", "ethernet"),
    Rung.ETHERNET: ("ethernet",),
}
"""Names under which a cluster gives its own measurements; the first that is there counts."""


@lru_cache(maxsize=1024)
def model_words(model: str) -> tuple[str, ...]:
    """The words of a GPU model's name, in lower case: 'NVIDIA A100-SXM4-80GB' has the word 'a100'."""
    return tuple(word for word in re.split(r"[^0-9a-z]+", model.lower()) if word)


def has_nvlink(model: str) -> bool:
    """Whether the GPUs of one machine of this model are known to be joined by NVLink."""
    return _nvlink(NVLINK_MACHINE, model) is not None


def nvlink_estimate(rung: Rung, model: str, words: str, overrides: Mapping[str, float]) -> Estimate | None:
    """What rungs 1 and 2 reach, where it is known for the GPU model."""
    table = NVLINK_MACHINE if rung is Rung.MACHINE else NVLINK_DOMAIN
    own = _override(rung, overrides, model)
    if own is not None:
        return Estimate(busbw_gbps=round(own, 1), words=words, basis="NVLink, measured on this cluster")
    known = _nvlink(table, model)
    return None if known is None else Estimate(busbw_gbps=round(known.value, 1), words=words, basis=NVLINK_BASIS)


def rails_estimate(
    rung: Rung, rates: Sequence[float], words: str, overrides: Mapping[str, float], model: str = ""
) -> Estimate | None:
    """What the rails in use reach; `rates` holds each rail's slowest port over all machines, in Gb/s."""
    if not rates:
        return None
    own = _override(rung, overrides, model)
    factor = FACTORS[rung].value if own is None else own
    measured = "" if own is None else ", measured on this cluster"
    slowest = min(rates)
    ethernet = rung in (Rung.ETHERNET_RACK, Rung.ETHERNET)
    unit = "interface" if ethernet else ("rail" if len(rates) == 1 else "rails")
    return Estimate(
        busbw_gbps=round(len(rates) * slowest / 8 * factor, 1),
        words=words,
        basis=f"{len(rates)} × {slowest:g} Gb/s {unit}, × {factor:.2f}{measured}",
    )


def rails_worth_using(rates: Sequence[float]) -> list[int]:
    """Indices of the rails to use: slow ones are dropped where the rest alone carries more."""
    order = sorted(range(len(rates)), key=lambda i: (rates[i], i))
    best, keep = 0.0, order
    for dropped in range(len(order)):
        rest = order[dropped:]
        if dropped and rates[order[dropped - 1]] >= DROP_BELOW * rates[rest[0]]:
            continue
        if len(rest) * rates[rest[0]] > best:
            best, keep = len(rest) * rates[rest[0]], rest
    return sorted(keep)


def _nvlink(table: Mapping[str, Measured], model: str) -> Measured | None:
    words = model_words(model)
    if "pcie" in words:
        return None
    return next((table[word] for word in words if word in table), None)


def factor_key(rung: Rung, model: str) -> str:
    """The name under which a cluster gives what was measured for one GPU model: `leaf@h100`."""
    return f"{OVERRIDE_NAMES[rung][0]}@{model_key(model)}"


@lru_cache(maxsize=1024)
def model_key(model: str) -> str:
    """A GPU model in one word, so that `H100` and `NVIDIA H100 80GB HBM3` are the same."""
    words = model_words(model)
    return next((word for word in words if MODEL.fullmatch(word)), "-".join(words))


def _override(rung: Rung, overrides: Mapping[str, float], model: str) -> float | None:
    """The cluster's own value, for this GPU model before one for all."""
    names = OVERRIDE_NAMES[rung]
    if model:
        names = (*(f"{name}@{model_key(model)}" for name in names[:1]), *names)
    return next((overrides[name] for name in names if name in overrides), None)
