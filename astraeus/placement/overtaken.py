"""Whether a claim waits only because runs of workspaces that have used less of their share went before it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from astraeus.placement.choose import find
from astraeus.placement.holdings import Taking, joined
from astraeus.placement.layers import NOW, Layers
from astraeus.placement.need import Need
from astraeus.placement.room import Room
from astraeus.placement.shares import Accounts
from astraeus.placement.types import Ask


@dataclass
class Overtaken:
    """Who has got room in a pass so far: claims that were placed, and the one for which machines are gathered."""

    accounts: Accounts
    layers: Layers
    placed: list[tuple[Ask, Taking]] = field(default_factory=list)
    gathered: tuple[Ask, Taking] | None = None
    _rooms: dict[tuple[bool, int, frozenset[int]], Room] = field(default_factory=dict)

    def by(self, ask: Ask, need: Need, protected: bool, kept: Iterable[tuple[Ask, Taking]]) -> str | None:
        """The workspace whose later runs have room that would hold a claim which finds none; None where none would."""
        if not self.accounts.sharing:
            return None
        gathered = [self.gathered] if self.gathered is not None and protected else []
        first = [found for found in (*self.placed, *kept, *gathered) if self.accounts.jumps(found[0], ask)]
        if not first or find(need, self._without(first, protected), ask.avoid) is None:
            return None
        return self.accounts.least([other for other, _ in first])

    def _without(self, first: list[tuple[Ask, Taking]], protected: bool) -> Room:
        """What would be free now without what these claims have got; room that is still in use would not."""
        now = self.layers.room(NOW, protected)
        key = protected, now.written, frozenset(other.claim for other, _ in first)
        if key not in self._rooms:
            room = self._rooms[key] = now.copy()
            taking = joined([taking for _, taking in first])
            there = (taking.masks & ~self.layers.free_at_first[taking.rows]) == 0
            parts = (taking.rows, taking.masks, taking.cpu, taking.memory)
            room.give_back(Taking(*(part[there] for part in parts)))
        return self._rooms[key]
