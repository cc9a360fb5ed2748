"""The restart budget: a pure value that only real failures spend and running earns back."""

from dataclasses import dataclass, replace

EARN_SECONDS = 600.0
BACKOFF_FIRST = 10.0
BACKOFF_MOST = 300.0
BUDGET_DEFAULT = 10


@dataclass(frozen=True)
class RestartBudget:
    """How many restarts a run may still spend.

    `size` is the budget, None when it is unlimited. `charged` counts failures not yet earned back, and
    `earned_seconds` is the running time, in seconds, already counted towards the next restart earned back.
    """

    size: int | None = BUDGET_DEFAULT
    charged: int = 0
    earned_seconds: float = 0.0

    @property
    def left(self) -> int | None:
        """Restarts left, None when unlimited."""
        return None if self.size is None else max(0, self.size - self.charged)

    @property
    def spent(self) -> bool:
        """Whether another genuine failure ends the run."""
        return self.left == 0

    @property
    def backoff_seconds(self) -> float:
        """The pause before the restart that follows the last charge: 10 s, doubling, at most 5 minutes."""
        doublings = min(max(self.charged - 1, 0), 16)
        return min(BACKOFF_FIRST * 2.0**doublings, BACKOFF_MOST)

    @property
    def next_earned_seconds(self) -> float | None:
        """Seconds of running until a restart is earned back, None when there is none to earn."""
        return EARN_SECONDS - self.earned_seconds if self.charged else None

    def charge(self) -> "RestartBudget":
        """After one more genuine failure. Call only while not `spent`."""
        return replace(self, charged=self.charged + 1)

    def ran(self, seconds: float) -> "RestartBudget":
        """After `seconds` more of running; time counts across attempts, and not while nothing is to be earned."""
        if not self.charged or seconds <= 0:
            return self
        earned, rest = divmod(self.earned_seconds + seconds, EARN_SECONDS)
        charged = max(0, self.charged - int(earned))
        return replace(self, charged=charged, earned_seconds=rest if charged else 0.0)
