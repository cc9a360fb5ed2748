"""Error counters judged as rates: what a port counted in the last hour, not since somebody cleared it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from astraeus.topology.scan import End

HOUR = 3600.0
WINDOW_SECONDS = HOUR
"""What was counted in so long, or since the last reading before it, is judged."""
JUDGED_SECONDS = 300.0
"""Two readings nearer to each other than this tell no rate: what was counted before stands unjudged."""

Counters = Mapping[str, int]

BENIGN = frozenset({"PortXmitWait", "PortRcvSwitchRelayErrors", "VL15Dropped", "PortXmitData", "PortRcvData"})
CONGESTION = frozenset({"PortXmitDiscards", "PortXmitWait", "XmitDiscards"})

ANY = 0.0
SYMBOLS_AN_HOUR = 120.0
"""A bit error rate of 10^-12; more means a fault is coming (NVSentinel)."""
RECOVERIES_AN_HOUR = 5 * 60.0
"""More than 5 a minute (NVSentinel)."""
ALLOWED: Mapping[str, float] = {
    "SymbolErrorCounter": SYMBOLS_AN_HOUR,
    "LinkErrorRecoveryCounter": RECOVERIES_AN_HOUR,
    "LinkDownedCounter": ANY,
    "LocalLinkIntegrityErrors": ANY,
    "ExcessiveBufferOverrunErrors": ANY,
}
"""So many an hour are no fault (NVSentinel's rules; any increase of the last three is one)."""
OTHERS_ALLOWED = SYMBOLS_AN_HOUR
"""For counters that nobody publishes a limit for, packets with errors among them: as for symbols."""

FULL: Mapping[str, int] = {
    "SymbolErrorCounter": 0xFFFF,
    "LinkErrorRecoveryCounter": 0xFF,
    "LinkDownedCounter": 0xFF,
    "PortRcvErrors": 0xFFFF,
    "PortRcvRemotePhysicalErrors": 0xFFFF,
    "PortXmitDiscards": 0xFFFF,
    "PortXmitConstraintErrors": 0xFF,
    "PortRcvConstraintErrors": 0xFF,
    "LocalLinkIntegrityErrors": 0xF,
    "ExcessiveBufferOverrunErrors": 0xF,
}
"""Where a counter stops: their widths in PortCounters (InfiniBand specification, 16.1.3.5)."""


@dataclass(frozen=True)
class Reading:
    """The counters of a fabric's ports at a time, in seconds; ports and counters at 0 are left out."""

    at: float
    ports: Mapping[End, Counters]


@dataclass(frozen=True, slots=True)
class Growth:
    """What a counter did: `total` as it stands, `grew` in the window of `seconds`, None while no rate can be told."""

    total: int
    grew: int | None
    seconds: float
    full: bool = False

    @property
    def hourly(self) -> float:
        """How many an hour; what was counted in less than an hour counts as it is."""
        return (self.grew or 0) * HOUR / max(self.seconds, HOUR)


def kept(readings: Sequence[Reading], now: Reading) -> tuple[Reading, ...]:
    """The readings to keep with a new one: those of the window at some distance, and the last one before it."""
    older = [one for one in readings if one.at < now.at]
    found = [one for one in older if one.at <= now.at - WINDOW_SECONDS][-1:]
    for one in older:
        if one.at > now.at - WINDOW_SECONDS and (not found or one.at - found[-1].at >= JUDGED_SECONDS):
            found.append(one)
    return (*found, now)


def growth(readings: Sequence[Reading], end: End) -> dict[str, Growth]:
    """What a port's counters did over readings in the order of time, the newest last.

    A counter that is smaller than before was cleared, and what it shows was counted since. One that is missing from a
    reading was 0 or could not be read: the next one goes on from the last that was seen, unless it is smaller.
    """
    if not readings:
        return {}
    seconds = readings[-1].at - readings[0].at
    found = {}
    for name, total in readings[-1].ports.get(end, {}).items():
        values = [one.ports.get(end, {}).get(name, 0) for one in readings]
        full = total == FULL.get(name)
        one = Growth(total, _grew(values), seconds, full)
        stuck = full and values[0] == total
        early = seconds < JUDGED_SECONDS and values[0] > 0 and not suspicious(name, one)
        known = len(readings) > 1 and not stuck and not early
        found[name] = one if known else replace(one, grew=None)
    return found


def _grew(values: Sequence[int]) -> int:
    grew, last = 0, values[0]
    for value in values[1:]:
        grew += value - last if value >= last else value
        last = value or last
    return grew


def suspicious(name: str, one: Growth) -> bool:
    """Whether a counter tells of a fault: more than is allowed, or a total that no rate is known of."""
    if one.grew is None:
        return True
    allowed = ALLOWED.get(name, OTHERS_ALLOWED)
    return one.hourly > allowed
