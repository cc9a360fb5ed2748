"""Which log requests each agent was told of, so that an unanswered one does not end its long polls at once."""

from collections import OrderedDict

REMEMBER_MOST = 10_000


class HandedOut:
    """Pairs of session and request id, the newest of them."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[str, str], None] = OrderedDict()

    def new(self, session: str, ids: frozenset[str]) -> bool:
        """Whether any of `ids` is news for the session; from now on none of them is."""
        fresh = [id for id in ids if (session, id) not in self._told]
        for id in fresh:
            self._told[(session, id)] = None
        while len(self._told) > REMEMBER_MOST:
            self._told.popitem(last=False)
        return bool(fresh)
