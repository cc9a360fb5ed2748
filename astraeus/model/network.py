"""What network a gang got, in the words and numbers that users read."""

from enum import IntEnum

from astraeus.model.machine import Lenient


class Rung(IntEnum):
    """The placement ladder, tightest first."""

    MACHINE = 1
    NVLINK = 2
    LEAF = 3
    FABRIC_RACK = 4
    FABRIC = 5
    ROCE_LEAF = 6
    ROCE = 7
    ETHERNET_RACK = 8
    ETHERNET = 9


class Estimate(Lenient):
    """The all-reduce bus bandwidth to expect, in GB/s, and how it was reckoned."""

    busbw_gbps: float
    words: str
    basis: str


class NetworkPlace(Lenient):
    """A run's `network` field: `network` is the id (`leaf:<leaf group>`, `fabric:<id>`, …), `words` says it."""

    network: str
    words: str
    estimate: Estimate | None = None
