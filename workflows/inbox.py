"""The run workflow's inbox: messages in order, each once, none of another attempt."""

import math
from collections.abc import Callable

from astraeus.model.messages import RunMessage

REMEMBERED = 256


class Inbox:
    """Unread messages and the ids of the last few hundred read; both travel on when the workflow continues as new."""

    def __init__(self, unread: list[RunMessage], seen: list[int]) -> None:
        self.unread = unread
        self.seen = seen

    def put(self, message: RunMessage) -> None:
        """Keep `message` unless it was put before."""
        if message.id in self.seen:
            return
        self.seen.append(message.id)
        del self.seen[:-REMEMBERED]
        self.unread.append(message)

    def take(self, attempt: int, wanted: Callable[[RunMessage], bool]) -> RunMessage | None:
        """The first unread message that is wanted; what belongs to another attempt is dropped on the way."""
        self.unread[:] = [message for message in self.unread if message.attempt in (None, attempt)]
        for i, message in enumerate(self.unread):
            if wanted(message):
                return self.unread.pop(i)
        return None

    def holds(self, attempt: int, wanted: Callable[[RunMessage], bool]) -> bool:
        """Whether `take` would find one."""
        return any(message.attempt in (None, attempt) and wanted(message) for message in self.unread)

    def forget(self, kinds: frozenset[str], until: float = math.inf) -> None:
        """Drop unread messages of these kinds with ids up to `until`: what they were about is over."""
        self.unread[:] = [message for message in self.unread if message.kind not in kinds or message.id > until]
