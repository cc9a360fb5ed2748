"""The words users read: every state's reason is made here and nowhere else."""

import math
import re
from collections.abc import Sequence

from astraeus.model.budget import RestartBudget

STARTING = re.compile(r"Starting together: (\d+) of (\d+) ready")


def starting(ready: int, size: int) -> str:
    """Progress to the barrier."""
    return f"Starting together: {ready} of {size} ready"


def starting_progress(reason: str) -> tuple[int, int] | None:
    """The counts in a reason made by `starting`, or None for any other reason."""
    found = STARTING.fullmatch(reason)
    return (int(found[1]), int(found[2])) if found else None


def minutes_left(seconds: float) -> str:
    """A wait rounded up, in the largest unit that reads well."""
    if seconds <= 90:
        return f"{max(1, math.ceil(seconds))} s"
    if seconds <= 90 * 60:
        return f"{math.ceil(seconds / 60)} min"
    return f"{math.ceil(seconds / 3600)} h"


def waiting_for_tighter(
    seconds: float, wanted: str, wanted_gbps: float | None, now: str, now_gbps: float | None
) -> str:
    """Patience: what the run waits for and what it could have at once. Bandwidths are in GB/s."""
    return (
        f"Waiting up to {minutes_left(seconds)} more for {wanted}{_all_reduce(wanted_gbps)} "
        f"(could start now on {now}{_all_reduce(now_gbps)})"
    )


START_UNKNOWN = "unknown: no time limit brings it room"
"""Of an expected start that no time limit tells."""


def starts_within(seconds: float) -> str:
    """An expected start: the latest that time limits tell."""
    if seconds <= 0:
        return "once what is being stopped is gone"
    return f"in {minutes_left(seconds)} at the latest, by time limits"


def starts_after(seconds: float) -> str:
    """An expected start that lies further ahead than was looked."""
    return f"unknown: not in the {minutes_left(seconds)} that were looked ahead"


def start_behind(claims: int) -> str:
    """An expected start that was not looked for, behind so many others."""
    return f"unknown: it is looked for of the first {claims} in line"


def _all_reduce(gbps: float | None) -> str:
    return "" if gbps is None else f", ~{gbps:.0f} GB/s all-reduce"


def over_quota(workspace: str, quota: int, in_use: int, kept: int, needs: int) -> str:
    """Of a run that would take its workspace over its quota; numbers of GPUs, `kept` for others of its runs."""
    if needs > quota:
        return f"Cannot run under the quota of workspace {workspace}: {_gpus(quota)}; this run needs {needs}"
    also = f" and {kept} kept for its runs" if kept else ""
    return f"Workspace {workspace} has {in_use} of its quota of {_gpus(quota)} in use{also}; this run needs {needs}"


def _gpus(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"


def behind_share(first: str, theirs: tuple[float, float], workspace: str, mine: tuple[float, float]) -> str:
    """Of a run that comes after others by fair shares; what each workspace used and its share are parts of all."""
    return (
        f"After runs of workspace {first}, which has used less of its share "
        f"({theirs[0]:.0%} of GPU-hours for a share of {theirs[1]:.0%}; {workspace}: {mine[0]:.0%} for {mine[1]:.0%})"
    ).replace("%", " %")


def preempted(preemptor: str) -> str:
    """The reason after an eviction by the scheduler."""
    return f"Preempted by higher-priority work ({preemptor}); waiting to run again"


def preempted_by_person(who: str, why: str | None) -> str:
    """The reason after `:preempt`."""
    return f"Preempted by {who}{f' ({why})' if why else ''}; waiting to run again"


def drained(who: str, why: str | None) -> str:
    """The reason after an operator drained a machine under the run."""
    return f"Moved by {who}: machine drained{f' ({why})' if why else ''}; waiting to run again"


def restarted(who: str, why: str | None) -> str:
    """The reason after `:restart`."""
    return f"Restarted by {who}{f' ({why})' if why else ''}; waiting to run again"


def never_started(why: str, times: int) -> str:
    """The reason after an attempt that Astraeus itself could not start; not charged, and counted when it repeats."""
    return f"Could not be started ({why}){f', {times} times so far' if times > 1 else ''}; trying again"


def lost_machine(worker: str) -> str:
    """The failure of a worker whose machine was lost."""
    return f"{worker} lost its machine"


def exited(worker: str, code: int | None, signal: int | None, oom: bool = False) -> str:
    """How a worker's process ended."""
    if oom:
        return f"{worker} ran out of memory"
    if signal:
        return f"{worker} was ended by signal {signal}"
    return f"{worker} ended without an exit code" if code is None else f"{worker} exited with code {code}"


def could_not_start(worker: str, error: str) -> str:
    """A worker that failed before its command ran."""
    return f"{worker} could not start: {error}"


def barrier_timed_out(missing: Sequence[str]) -> str:
    """The barrier's limit passed; the members that did not arrive are named."""
    names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    return f"Gang barrier timed out waiting for all members (missing: {names})"


def placed_alone(machine: str) -> str:
    """A worker that starts by itself, on its way to running."""
    return f"Starting on {machine}"


def never_ready(missing: Sequence[str]) -> str:
    """The limit for being ready passed for a worker that starts by itself."""
    return f"{', '.join(missing) or 'The worker'} did not become ready in time"


def worker_restart(failure: str, delay: float | None = None, budget: RestartBudget | None = None) -> str:
    """The reason while a worker waits to be placed again, alone, after `failure`."""
    return _again(f"Restart: {failure}", delay, budget)


def gang_restart(failure: str, delay: float | None = None, budget: RestartBudget | None = None) -> str:
    """The reason while a gang waits to be placed again after `failure`."""
    return _again(failure if failure.startswith("Gang ") else f"Gang restart: {failure}", delay, budget)


def _again(words: str, delay: float | None, budget: RestartBudget | None) -> str:
    if delay:
        words += f"; restarting in {delay:.0f} s"
    if delay and budget is not None and budget.left is not None:
        words += f" ({budget.left} of {budget.size} restarts left)"
    return words


def budget_spent(failure: str, budget: RestartBudget) -> str:
    """The final reason when a failure finds the budget spent."""
    return f"{worker_budget_spent(failure, budget)}; the gang does not run without it"


def worker_budget_spent(failure: str, budget: RestartBudget) -> str:
    """The same of a worker that starts and fails by itself."""
    return f"{failure}: restart budget ({budget.size}) spent"


def failed_for_good(failure: str) -> str:
    """The final reason of a run whose on_failure is Fail."""
    return f"{failure}; on_failure is Fail"


def time_limit(seconds: int) -> str:
    """The final reason of a run that reached its time limit."""
    return f"Reached its time limit ({seconds} s)"


def stopping(why: str) -> str:
    """The reason while members are being stopped."""
    return f"Stopping: {why}"


def undead(workers: Sequence[str]) -> str:
    """Of processes that did not end; `workers` are named, perhaps with their machines."""
    return f"{', '.join(workers)} survived SIGKILL for 60 s"
