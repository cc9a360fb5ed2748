"""The port behind which a cluster's workers are started and stopped."""

from typing import Protocol

from astraeus.model.messages import AttemptRef


class Executor(Protocol):
    """Brings the workers of an attempt to where the ledger wants them; reports come back through the ledger.

    Every call may be repeated, also after a crash in the middle, and then changes nothing. None waits for workers:
    what they do is seen in the attempt's situation. A call that cannot be carried out now raises `Away` and is
    tried again; one that never can raises another `AstraeusError`.
    """

    async def start(self, ref: AttemptRef) -> None:
        """Ask for every worker of a granted attempt, held at its gate.

        Absent: an attempt without a granted claim, or whose end is decided, starts nothing.
        Slow: workers that never arrive are the barrier's matter; asking again does not start them twice.
        """

    async def open(self, ref: AttemptRef, budget_left: int | None, next_earned_seconds: float | None) -> None:
        """Let all workers of an attempt go, and show what is left of the run's restart budget.

        Absent: nothing opens while a worker has not arrived, or once the attempt's end is decided.
        Repeated: the gates were opened once, and the first time counts.
        Slow: a worker that is cut off goes when it hears of it, if nothing has stopped the attempt until then.
        """

    async def stop(self, ref: AttemptRef, cause: str | None, who: str, why: str | None) -> None:
        """Record why (`cause` is None after a failure of its own), then have every worker stopped.

        Absent: an attempt that started nothing is gone at once. Repeated: the first reason stands.
        Slow: a worker is gone when its machine confirms it or is fenced, however long that takes.
        """
