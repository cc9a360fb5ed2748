"""What an attempt's end means for the run: the charge table as one pure function."""

from dataclasses import dataclass

from astraeus.model import words
from astraeus.model.budget import RestartBudget
from astraeus.model.messages import HIGHER_PRIORITY, Situation
from workflows.contracts import Phase, RunLife

FREE_PAUSE_SECONDS = 5.0
FREE_PAUSE_MOST = 60.0


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended and what comes next.

    `pause_seconds` is waited before the next claim; `headline` is what the run shows until it is placed again.
    """

    cause: str
    detail: str
    state: str
    reason: str
    budget: RestartBudget
    charged: bool = False
    phase: Phase = "over"
    pause_seconds: float = 0.0
    headline: str | None = None
    avoid: str | None = None
    actor: str = "astraeus"


def budget_of(life: RunLife) -> RestartBudget:
    """The run's budget as a value."""
    return RestartBudget(life.budget_size, life.charged, life.earned_seconds)


def outcome(life: RunLife, end: Situation) -> Outcome:
    """The end of the present attempt, from the order in which the ledger saw success, failure and stop."""
    budget = budget_of(life).ran(running_seconds(end))
    if end.succeeded:
        done = "All workers exited with code 0" if end.size != 1 else "The worker exited with code 0"
        return Outcome("succeeded", done, "Succeeded", done, budget)
    # The answers alone name them in histories from before the ledger kept them.
    if undead := end.undead or life.undead:
        return _undead(undead, end, budget)
    cause = end.intent or (life.stop.cause if life.stop else None)
    who = end.intent_by or (life.stop.who if life.stop else "astraeus")
    if end.failure and cause == "cancelled" and not _ends_the_run(life, budget):
        return _cancelled(who, budget)
    if end.failure:
        return _failed(life, end.cause or "exited", end.failure, end.failure_machine, budget)
    if cause == "barrier_timeout":
        late = words.never_ready(end.missing) if life.alone else words.barrier_timed_out(end.missing)
        return _failed(life, cause, late, None, budget)
    if cause == "cancelled":
        return _cancelled(who, budget)
    if cause == "time_limit":
        reason = words.time_limit(life.time_limit_seconds or 0)
        return Outcome("time_limit", reason, "Failed", reason, budget)
    if cause == "held":
        return Outcome("held", f"Held by {who}", "Pending", f"Held by {who}", budget, phase="held", actor=who)
    why = end.intent_why or (life.stop.why if life.stop else None)
    return _free(life, cause or "never_started", who, why, budget)


def running_seconds(end: Situation) -> float:
    """How long the attempt was Running, in seconds, by the ledger's clock: its stop is no part of that."""
    if end.gates_opened_at is None:
        return 0.0
    return max(0.0, (end.now if end.decided_at is None else end.decided_at) - end.gates_opened_at)


def _ends_the_run(life: RunLife, budget: RestartBudget) -> bool:
    return life.failure_rule == "Fail" or budget.spent


def _cancelled(who: str, budget: RestartBudget) -> Outcome:
    reason = f"Cancelled by {who}"
    return Outcome("cancelled", reason, "Cancelled", reason, budget, actor=who)


def _undead(undead: list[str], end: Situation, budget: RestartBudget) -> Outcome:
    """A process that cannot be killed ends the run: the next attempt could meet it."""
    detail = words.undead(undead)
    reason = f"{detail}; the machine is drained"
    state = "Cancelled" if end.intent == "cancelled" else "Failed"
    return Outcome(end.cause or end.intent or "exited", detail, state, reason, budget)


def _failed(life: RunLife, cause: str, failure: str, machine: str | None, budget: RestartBudget) -> Outcome:
    if life.failure_rule == "Fail":
        return Outcome(cause, failure, "Failed", words.failed_for_good(failure), budget, charged=True)
    if budget.spent:
        spent = words.worker_budget_spent if life.alone else words.budget_spent
        return Outcome(cause, failure, "Failed", spent(failure, budget), budget, charged=True)
    budget = budget.charge()
    pause = budget.backoff_seconds
    again = words.worker_restart if life.alone else words.gang_restart
    # A lost machine's words carry no delay; see the words users read.
    reason = again(failure) if cause == "machine_lost" else again(failure, pause, budget)
    return Outcome(
        cause,
        failure,
        "Pending",
        reason,
        budget,
        charged=True,
        phase="backoff",
        pause_seconds=pause,
        headline=again(failure),
        avoid=machine,
    )


def _free(life: RunLife, cause: str, who: str, why: str | None, budget: RestartBudget) -> Outcome:
    times = life.free_restarts.get(cause, 0)
    # Doublings are bounded too: a power of a large count is no float any more, and the workflow would stick there.
    pause = min(FREE_PAUSE_SECONDS * 2.0 ** min(times, 16), FREE_PAUSE_MOST) if cause == "never_started" else 0.0
    headline = _free_words(cause, who, why, times + 1)
    return Outcome(
        cause,
        headline,
        "Pending",
        headline,
        budget,
        phase="backoff" if pause else "queue",
        pause_seconds=pause,
        headline=headline,
        actor=who,
    )


def _free_words(cause: str, who: str, why: str | None, times: int) -> str:
    if cause == "preempted":
        return words.preempted(who) if why == HIGHER_PRIORITY else words.preempted_by_person(who, why)
    if cause == "drained":
        return words.drained(who, why)
    if cause == "restarted":
        return words.restarted(who, why)
    return words.never_started(why or "the executor did not start it", times)
