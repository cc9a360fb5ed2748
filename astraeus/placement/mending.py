"""A fleet brought up to date with machines whose state changed, in place: what is known of all others stays known."""

from dataclasses import replace

import numpy as np

from astraeus.placement.fleet import Fleet, Ints
from astraeus.placement.kinds import Codes, kinds_of
from astraeus.placement.types import Machine

MOST = 256
"""Where more machines changed, the fleet is better made anew."""


def mend(fleet: Fleet, given: tuple[Machine, ...]) -> tuple[Ints, bool] | None:
    """Make the fleet that of `given`; the machines that changed and whether any has become able to take more.

    None: it must be made anew.

    It can be mended where few machines differ and only in what may come and go: GPUs and whether they take work.
    """
    pairs = [(was, now) for was, now in zip(fleet.given, given, strict=False) if was is not now]
    if len(given) != len(fleet.given) or len(pairs) > MOST or not all(_stands(was, now) for was, now in pairs):
        return None
    if fleet.clean is fleet.sound and any(now.doubtful & ~now.broken for _, now in pairs):
        # Kinds of workers were told apart as if doubtful GPUs did not matter here.
        return None
    rows = np.array([fleet.index[now.name] for _, now in pairs], np.int64)
    machines = list(fleet.machines)
    for row, (_, now) in zip(rows.tolist(), pairs, strict=True):
        machines[row] = now
        fleet.sound[row] = fleet.full[row] & ~now.broken
        fleet.clean[row] = fleet.sound[row] & ~now.doubtful
        fleet.refused[row] = now.refusal is not None
    fleet.given, fleet.machines = given, tuple(machines)
    _sort_again(fleet, rows)
    return rows, any(_has_more(was, now) for was, now in pairs)


def _has_more(was: Machine, now: Machine) -> bool:
    """Whether a machine takes work again, or GPUs of it are in better health."""
    back = was.refusal is not None and now.refusal is None
    return back or bool(was.broken & ~now.broken or was.doubtful & ~now.doubtful)


def _stands(was: Machine, now: Machine) -> bool:
    """Whether it is the same machine in the same place, with the same ports."""
    return replace(now, broken=was.broken, doubtful=was.doubtful, refusal=was.refusal) == was


def _sort_again(fleet: Fleet, rows: Ints) -> None:
    """What keeps these machines from serving each kind of worker; kinds that agreed and agree share the answer."""
    done: dict[tuple[int, bytes], tuple[Codes, Codes]] = {}
    for kind in kinds_of(fleet):
        values = kind.codes_of(rows)
        key = (id(kind.codes), values.tobytes())
        if key not in done:
            done[key] = kind.codes, kind.codes.but(rows, values, fleet)
        kind.codes = done[key][1]
