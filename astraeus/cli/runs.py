"""Looking at runs and giving them orders."""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from astraeus.cli import output
from astraeus.cli.options import Cluster, Json, Label, Run, Why
from astraeus.cli.patience import patiently
from astraeus.cli.planning import network_facts, show_explanation
from astraeus.cli.session import FAILED, api

if TYPE_CHECKING:
    from astraeus.client.api import Api

COLUMNS = ("NAME", "CLUSTER", "STATE", "REASON")
OF_ONE_NAME = ("UID", "SUBMITTED", "STATE", "REASON")
WATCH_SECONDS = 1.0
State = Annotated[list[str] | None, typer.Option("--state", help="Only runs in this state; repeatable.")]
FINAL = frozenset({"Succeeded", "Failed", "Cancelled"})


def runs(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show changes.")] = False,
    state: State = None,
    label: Label = None,
    cluster: Cluster = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Every run that had this name, by uid.")] = None,
    as_json: Json = False,
) -> None:
    """List the runs of the workspace."""
    with api() as calls:

        def read() -> list[dict[str, Any]]:
            return list(calls.runs(states=state or [], labels=label or [], cluster=cluster, name=name))

        if watch:
            _watch(read)
        elif name:
            output.listing(read(), OF_ONE_NAME, _row_of_one_name, as_json)
        else:
            output.listing(read(), COLUMNS, row, as_json)


def row(run: dict[str, Any]) -> tuple[object, ...]:
    """A run's line in the table."""
    return run["metadata"]["name"], run["cluster"], run["state"], run["reason"]


def _row_of_one_name(run: dict[str, Any]) -> tuple[object, ...]:
    return run["metadata"]["uid"], output.clock(run["submitted_at"]), run["state"], run["reason"]


def _watch(read: Callable[[], list[dict[str, Any]]]) -> None:
    if sys.stdout.isatty():
        _watch_screen(read)
        return
    typer.echo("  ".join(COLUMNS))
    shown: dict[object, tuple[object, ...]] = {}
    while True:
        for run in patiently(read):
            key, line = _identity(run), row(run)
            if shown.get(key) != line:
                shown[key] = line
                typer.echo("  ".join(map(output.clean, line)))
        time.sleep(WATCH_SECONDS)


def _watch_screen(read: Callable[[], list[dict[str, Any]]]) -> None:
    from rich.live import Live

    from astraeus.cli.screen import fitting

    with Live(auto_refresh=False) as live:
        while True:
            found = patiently(read)[::-1]
            found.sort(key=lambda run: run["state"] in FINAL)
            live.update(fitting(COLUMNS, list(map(row, found)), live.console), refresh=True)
            time.sleep(WATCH_SECONDS)


def get(run: Run, as_json: Json = False) -> None:
    """Show one run: its state, network, restarts and workers."""
    with api() as calls:
        found = calls.run(run)
    if as_json:
        output.print_json(found)
        return
    output.facts(_facts(found))
    if found.get("workers"):
        typer.echo()
        if any(worker.get("reason") for worker in found["workers"]):
            output.table(("WORKER", "STATE", "ATTEMPT", "MACHINE", "GPUS", "REASON"), map(_alone_row, found["workers"]))
        else:
            output.table(("WORKER", "STATE", "MACHINE", "GPUS", "LEAF", "ENDED"), map(_worker_row, found["workers"]))


def _facts(run: dict[str, Any]) -> Iterator[tuple[str, object]]:
    yield "Run", run["metadata"]["name"]
    yield "Cluster", run["cluster"]
    yield "State", run["state"] + (" (held)" if run.get("held") else "")
    yield "Reason", run["reason"]
    yield from network_facts(run.get("network"))
    yield "Attempt", run["attempt"]
    yield "Restarts", _restarts(run["restarts"])
    if labels := run["metadata"].get("labels"):
        yield "Labels", ", ".join(f"{key}={value}" for key, value in labels.items())
    for name, key in (("Submitted", "submitted_at"), ("Started", "started_at"), ("Finished", "finished_at")):
        if run.get(key):
            yield name, output.clock(run[key])


def _restarts(restarts: dict[str, Any]) -> str:
    if restarts.get("budget") is None:
        return "unlimited"
    earned = restarts.get("next_earned_at")
    later = f"; one is earned back at {output.clock(earned)}" if earned else ""
    return f"{restarts['left']} of {restarts['budget']} left{later}"


def _worker_row(worker: dict[str, Any]) -> tuple[object, ...]:
    ended = worker.get("error") or ""
    if not ended and worker.get("signal"):
        ended = f"signal {worker['signal']}"
    elif not ended and worker.get("exit_code") is not None:
        ended = f"code {worker['exit_code']}"
    gpus = output.numbers(worker.get("gpus") or []) or "-"
    return worker["name"], worker["state"], worker["machine"], gpus, worker.get("leaf") or "-", ended


def _alone_row(worker: dict[str, Any]) -> tuple[object, ...]:
    gpus = output.numbers(worker.get("gpus") or []) or "-"
    place = worker.get("machine") or "-"
    return worker["name"], worker["state"], worker["attempt"], place, gpus, worker.get("reason")


def explain(run: Run, as_json: Json = False) -> None:
    """Say why a run is where it is, and what would change it."""
    with api() as calls:
        answer = calls.explain(run)
    if as_json:
        output.print_json(answer)
    else:
        show_explanation(answer)


def attempts(run: Run, as_json: Json = False) -> None:
    """List a run's attempts: how each ended, and whether it was charged."""
    columns = ("ATTEMPT", "NETWORK", "PLACED", "ENDED", "CAUSE", "CHARGED", "DETAIL")
    with api() as calls:
        found = list(calls.attempts(run))
    if any(one.get("worker") for one in found):
        output.listing(found, ("WORKER", *columns), lambda one: (one.get("worker"), *_attempt_row(one)), as_json)
    else:
        output.listing(found, columns, _attempt_row, as_json)


def _attempt_row(attempt: dict[str, Any]) -> tuple[object, ...]:
    network = (attempt.get("network") or {}).get("network", "-")
    charged = "-" if attempt.get("ended_at") is None else "yes" if attempt.get("charged") else "no"
    return (
        attempt["attempt"],
        network,
        output.clock(attempt.get("placed_at")) or "-",
        output.clock(attempt.get("ended_at")) or "-",
        attempt.get("cause") or "-",
        charged,
        attempt.get("detail") or "",
    )


def events(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", show_default=False, help="Only of this run.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and show new events of the workspace.")] = False,
    as_json: Json = False,
) -> None:
    """List what happened, and who did it."""
    with api() as calls:
        if follow:
            _follow_events(calls, run, as_json)
            return
        found = calls.run_events(run) if run else calls.events()
        output.listing(found, ("AT", "RUN", "ACTOR", "EVENT"), _event_row, as_json)


def _follow_events(calls: "Api", run: str | None, as_json: bool) -> None:
    uid = patiently(partial(calls.run, run))["metadata"]["uid"] if run else None
    # Known before the first event comes, so that a connection made again misses none.
    last = patiently(calls.newest_event)

    def read() -> None:
        nonlocal last
        with calls.follow_events(after=last) as stream:
            for event in stream:
                last = event["id"]
                if uid is None or event.get("run_uid") == uid:
                    _show_event(event, as_json)

    patiently(read)


def _show_event(event: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(event)
    else:
        typer.echo("  ".join(output.clean(cell) for cell in _event_row(event)))


def _event_row(event: dict[str, Any]) -> tuple[object, ...]:
    return (
        output.clock(event.get("at")),
        event.get("worker") or event.get("run") or "-",
        event.get("actor") or "-",
        event.get("message"),
    )


def cancel(run: Run, why: Why = None, as_json: Json = False) -> None:
    """Stop a run for good."""
    _order(run, "cancel", why, as_json, "is being cancelled")


def preempt(run: Run, why: Why = None, as_json: Json = False) -> None:
    """Stop a run now; it waits to run again, and is not charged."""
    _order(run, "preempt", why, as_json, "is being preempted")


def restart(run: Run, why: Why = None, as_json: Json = False) -> None:
    """Stop a run and place it again; not charged."""
    _order(run, "restart", why, as_json, "is being restarted")


def hold(run: Run, why: Why = None, as_json: Json = False) -> None:
    """Keep a waiting run from being placed."""
    _order(run, "hold", why, as_json, "is held")


def release(run: Run, as_json: Json = False) -> None:
    """Let a held run be placed."""
    _order(run, "release", None, as_json, "is released")


def _order(run: str, order: str, why: str | None, as_json: bool, done: str) -> None:
    with api() as calls:
        answer = calls.order(run, order, why)
    if as_json:
        output.print_json(answer)
    else:
        output.say(f"{run} {done}")


def delete(
    run: Run,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is gone.")] = True,
    as_json: Json = False,
) -> None:
    """Stop a run if it is live, then remove it from the lists."""
    with api() as calls:
        before = calls.run(run)
        answer = calls.delete_run(run)
        if wait:
            _wait_gone(calls, run, _identity(before))
    if as_json:
        output.print_json(answer)
    else:
        output.say(f"{run} deleted" if wait else f"{run} is being deleted")


def _wait_gone(calls: "Api", run: str, identity: object) -> None:
    from astraeus.client.errors import ApiError

    while True:
        try:
            if _identity(patiently(lambda: calls.run(run))) != identity:
                return
        except ApiError as error:
            if error.status == 404:
                return
            raise
        time.sleep(0.2)


def _identity(run: dict[str, Any]) -> object:
    metadata = run["metadata"]
    return metadata.get("uid") or (metadata["name"], run.get("submitted_at"))


def finish(run: dict[str, Any], quiet: bool = False) -> None:
    """Say how a run ended; exit 1 unless it succeeded."""
    if not quiet:
        output.say(f"{run['metadata']['name']} {run['state']}: {run['reason']}")
    if run["state"] != "Succeeded":
        raise typer.Exit(FAILED)
