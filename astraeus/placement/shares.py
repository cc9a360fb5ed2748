"""Quotas and fair shares of workspaces: whose runs may take GPUs at all, and whose go first."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp2, log
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from astraeus.model import words
from astraeus.placement.fleet import Floats, Ints
from astraeus.placement.holdings import Holdings
from astraeus.placement.types import Allotment, Ask, Holding, Snapshot

SHARE_UNSAID = 1.0
"""The share of workspaces that were given none, where others were."""


def decayed(gpu_seconds: float, seconds: float, half_life: float) -> float:
    """What is left of use after a time."""
    return gpu_seconds * exp2(-max(0.0, seconds) / half_life)


def accrued(gpus: Floats | Ints | int, seconds: Floats | float, half_life: float) -> Floats:
    """The GPU-seconds that GPUs held for a time come to, each decayed since it was used."""
    rate = log(2) / half_life
    use: Floats = gpus * -np.expm1(-rate * np.maximum(0.0, seconds)) / rate
    return use


@dataclass(frozen=True, slots=True)
class Use:
    """How a workspace stands: GPUs in use, decayed GPU-seconds, and what these and its share are of all."""

    in_use: int
    gpu_seconds: float
    used: float
    share: float


class Held(NamedTuple):
    """Holdings as columns: whose, how many GPUs, since when. `names` are those of the workspaces, by number."""

    names: Mapping[int, str]
    whose: Ints
    gpus: Ints
    since: Floats

    @classmethod
    def read(cls, holdings: Sequence[Holding]) -> "Held":
        """The columns of these holdings."""
        names = dict(enumerate(dict.fromkeys(holding.workspace for holding in holdings)))
        numbers = {name: number for number, name in names.items()}
        return cls(
            names,
            np.array([numbers[holding.workspace] for holding in holdings], np.int64),
            np.array([holding.gpu_mask.bit_count() for holding in holdings], np.int64),
            np.array([holding.started_at for holding in holdings], np.float64),
        )

    @classmethod
    def known(cls, holdings: Holdings) -> "Held":
        """The same, of holdings that are arrays already."""
        columns = holdings.columns
        gpus = np.bitwise_count(columns["masks"]).astype(np.int64)
        return cls(holdings.workspaces, columns["whose"], gpus, columns["started"])

    def sums(self, values: Floats | Ints) -> dict[str, float]:
        """The sum of a column for every workspace that holds anything."""
        found, there = np.bincount(self.whose, values), np.bincount(self.whose)
        # In the order of names: sums of these sums must not depend on who came first.
        return dict(sorted((self.names[number], float(found[number])) for number in np.flatnonzero(there).tolist()))


@dataclass
class Accounts:
    """The workspaces of one pass: their quotas, shares and use, and what this pass gives them.

    Where nobody has a quota, nothing is over one; where nobody has a share, all have the same `rank`.
    """

    allotments: Mapping[str, Allotment]
    quotas: Mapping[str, int] = field(default_factory=dict)
    in_use: Counter[str] = field(default_factory=Counter)
    used: dict[str, float] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    kept: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, snapshot: Snapshot, now: float, holdings: Holdings | None = None) -> "Accounts":
        """How the workspaces stand at the start of a pass; nothing where nobody has a quota or a share.

        `holdings` are those of the snapshot, where they are arrays already.
        """
        return cls.whole(snapshot, now, holdings) if snapshot.allotments else cls({})

    @classmethod
    def whole(cls, snapshot: Snapshot, now: float, holdings: Holdings | None = None) -> "Accounts":
        """The same, with the GPUs in use in any case."""
        allotments = snapshot.allotments
        self = cls(allotments)
        held = Held.read(snapshot.holdings) if holdings is None else Held.known(holdings)
        self.quotas = {name: due.gpu_quota for name, due in allotments.items() if due.gpu_quota is not None}
        self.in_use = Counter({name: int(gpus) for name, gpus in held.sums(held.gpus).items()})
        if any(due.share is not None for due in allotments.values()):
            self._rank(snapshot, held, now)
        return self

    def _rank(self, snapshot: Snapshot, held: Held, now: float) -> None:
        half_life = snapshot.half_life_seconds
        self.used = dict.fromkeys((ask.workspace for ask in snapshot.asks), 0.0)
        self.used |= held.sums(accrued(held.gpus, now - held.since, half_life))
        for name, due in self.allotments.items():
            self.used[name] = self.used.get(name, 0.0) + decayed(due.used, now - due.used_at, half_life)
        # Whole GPU-seconds: what sums of fractions leave behind must not decide between workspaces.
        ratios = {name: round(used) / self.share(name) for name, used in self.used.items()}
        places = {ratio: place for place, ratio in enumerate(sorted(set(ratios.values())))}
        self.ranks = {name: places[ratio] for name, ratio in ratios.items()}

    @property
    def sharing(self) -> bool:
        """Whether anybody has a share."""
        return bool(self.ranks)

    def share(self, workspace: str) -> float:
        """The weight of a workspace."""
        due = self.allotments.get(workspace)
        return SHARE_UNSAID if due is None or due.share is None else due.share

    def is_over(self, ask: Ask) -> bool:
        """Whether a claim would take its workspace over its quota, beside what is kept for others of its runs."""
        quota = self.quotas.get(ask.workspace)
        if quota is None:
            return False
        gpus = ask.resources.gpu_requests.count
        return gpus > 0 and self.in_use[ask.workspace] + self.kept[ask.workspace] + gpus > quota

    def count(self, ask: Ask, *, kept: bool) -> None:
        """Count the GPUs that this pass gives to a claim, or keeps for it."""
        (self.kept if kept else self.in_use)[ask.workspace] += ask.resources.gpu_requests.count

    def over_words(self, ask: Ask) -> str:
        """Why a claim that is over its quota waits."""
        return words.over_quota(
            _name(ask.workspace),
            self.quotas[ask.workspace],
            self.in_use[ask.workspace],
            self.kept[ask.workspace],
            ask.resources.gpu_requests.count,
        )

    def jumps(self, other: Ask, ask: Ask) -> bool:
        """Whether a claim goes before one of an earlier run because its workspace has used less of its share."""
        return (
            other.priority == ask.priority
            and self.ranks[other.workspace] < self.ranks[ask.workspace]
            and (other.submitted_at, other.claim) > (ask.submitted_at, ask.claim)
        )

    def least(self, asks: Sequence[Ask]) -> str:
        """The workspace among these that has used least of its share."""
        return min({ask.workspace for ask in asks}, key=lambda name: (self.ranks[name], name))

    def share_words(self, ask: Ask, first: str) -> str:
        """Why a claim waits that is behind runs of another workspace."""
        whole, organisation = self.uses(), ask.workspace.partition("/")[0]
        mine, other = whole[ask.workspace], whole[first]
        name = _name(first) if first.startswith(f"{organisation}/") else first
        return words.behind_share(name, (other.used, other.share), _name(ask.workspace), (mine.used, mine.share))

    def uses(self) -> dict[str, Use]:
        """How every workspace stands."""
        names = self.used.keys() | self.allotments.keys() | self.in_use.keys()
        total = sum(self.used.values()) or 1.0
        weights = {name: self.share(name) for name in names} if self.ranks else {}
        all_weights = sum(weights.values()) or 1.0
        return {
            name: Use(
                self.in_use[name],
                self.used.get(name, 0.0),
                self.used.get(name, 0.0) / total,
                weights.get(name, 0.0) / all_weights,
            )
            for name in sorted(names)
        }


def charged(snapshot: Snapshot, gone: Iterable[Holding], now: float) -> Mapping[str, Allotment]:
    """What the workspaces are due once these holdings have ended, with what they used; on a cluster with shares."""
    found, half_life = dict(snapshot.allotments), snapshot.half_life_seconds
    if not any(due.share is not None for due in found.values()):
        return snapshot.allotments
    for one in gone:
        due = found.get(one.workspace, Allotment(used_at=now))
        used = float(accrued(one.gpu_mask.bit_count(), now - one.started_at, half_life))
        used += decayed(due.used, now - due.used_at, half_life)
        found[one.workspace] = replace(due, used=used, used_at=now)
    return found


def in_order(asks: tuple[Ask, ...], ranks: Mapping[str, int] = MappingProxyType({})) -> list[Ask]:
    """Claims in the order of the queue: priority, the rank of their workspace, when the run was submitted, id."""
    if not ranks:
        return sorted(asks, key=lambda ask: (-ask.priority, ask.submitted_at, ask.claim))
    return sorted(asks, key=lambda ask: (-ask.priority, ranks[ask.workspace], ask.submitted_at, ask.claim))


def _name(workspace: str) -> str:
    return workspace.rpartition("/")[2]
