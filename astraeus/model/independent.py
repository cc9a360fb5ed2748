"""Runs that start `Independent`: what each worker asks for, and what the run is by the states of its workers."""

from collections.abc import Mapping, Sequence

from astraeus.model.spec import Resources

WORKERS_MOST = 1024
"""Each worker is a run of its own in the ledger, with a workflow of its own; more belong into several runs."""

STANDING = ("Running", "Starting", "Stopping", "Pending")
"""Of the states of its workers that are not final, the first of these is the run's."""
SAID = {
    "Running": "running",
    "Starting": "starting",
    "Stopping": "stopping",
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Cancelled": "cancelled",
    "Pending": "waiting",
}
"""How a reason counts workers, in this order."""


def one_worker(resources: Resources, size: int) -> Resources:
    """What each of `size` workers asks for: one machine, and its even part of the GPUs."""
    gpus = resources.gpu_requests
    part = gpus.model_copy(update={"count": gpus.count // size})
    return resources.model_copy(update={"gpu_requests": part, "machines": 1})


def worker_uid(run_uid: str, rank: int) -> str:
    """The identity of a worker's own run: known from its run's and its rank, in the order of ranks, like no other."""
    return f"{run_uid[:27]}w{rank:04x}"


def standing(counts: Mapping[str, int], rule: str, reasons: Mapping[str, str]) -> tuple[str, str]:
    """The state and reason of a run with so many workers in each state.

    `rule` is its `on_failure`; `reasons` has that of the first worker that is Pending, Failed or Cancelled.
    """
    counts = {state: count for state, count in counts.items() if count}
    for state in STANDING:
        if state in counts:
            waits = reasons.get("Pending", "") if "Pending" in counts else ""
            return state, counted([(counts.get(known, 0), said) for known, said in SAID.items()], waits)
    return _ended(counts, rule, reasons)


def counted(counts: Sequence[tuple[int, str]], waits: str = "") -> str:
    """So many workers do so: `5 of 8 workers running; 3 waiting: …`, with what the last of them wait for."""
    (number, first), *others = [one for one in counts if one[0]]
    size = number + sum(count for count, _ in others)
    workers = f"{size} worker{'' if size == 1 else 's'} {first}"
    told = [f"{number} of {workers}" if others else workers, *(f"{count} {said}" for count, said in others)]
    return "; ".join(told) + (f": {waits}" if waits else "")


def _ended(counts: Mapping[str, int], rule: str, reasons: Mapping[str, str]) -> tuple[str, str]:
    """Where workers fail alone, only a person cancels them; else the first failure is what stopped the others."""
    alone, size = rule == "RestartWorker", sum(counts.values())
    if "Failed" in counts and not (alone and "Cancelled" in counts):
        failed = reasons["Failed"]
        return "Failed", f"{counts['Failed']} of {size} workers failed: {failed}" if alone and size > 1 else failed
    if "Cancelled" in counts:
        return "Cancelled", reasons["Cancelled"]
    return "Succeeded", f"All {size} workers exited with code 0" if size > 1 else "The worker exited with code 0"
