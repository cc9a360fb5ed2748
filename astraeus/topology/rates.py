"""Link rates: the width and speed that tools print, as Gb/s of data."""

import re
from functools import lru_cache

LANE_GBPS = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 13.6,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Gb/s of data on one lane, by the name of the speed."""

SIGNALLED = {
    "2.5": "SDR",
    "5.0": "DDR",
    "10.0": "QDR",
    "14.0625": "FDR",
    "25.78125": "EDR",
    "53.125": "HDR",
    "106.25": "NDR",
    "212.5": "XDR",
}
"""The name of a speed by the Gb/s on the wire of one lane, as iblinkinfo prints it."""

RATE = re.compile(r"(\d{1,2})x([A-Z]+\d*)")


@lru_cache(maxsize=256)
def gbps(rate: str) -> float:
    """Gb/s of data of a rate such as `4xNDR`; 0 where the tool did not know the width or the speed."""
    found = RATE.fullmatch(rate)
    if found is None:
        return 0.0
    # InfiniBand rounds four FDR lanes to 54 Gb/s, and so do the kernel and NCCL.
    data = int(found[1]) * LANE_GBPS.get(found[2], 0.0)
    return 54.0 if rate == "4xFDR" else data


def named(width: str, lane: str) -> str:
    """The rate that iblinkinfo's width (`4X`) and Gb/s per lane (`106.25`, `10.0 Gbps (FDR10)`) mean."""
    speed = "FDR10" if "FDR10" in lane else SIGNALLED.get(lane.split()[0] if lane.split() else "", "???")
    return f"{width[:-1]}x{speed}"


def spoken(rate: str) -> str:
    """A rate in the words of a finding."""
    known = gbps(rate)
    return f"{rate} ({known:g} Gb/s)" if known else rate
