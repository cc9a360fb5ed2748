"""The recipe's steps 5 and 6, and the end of parts of Astraeus itself: the gang comes back, or does not even notice."""

import re
from collections.abc import Iterable
from typing import Any

from deploy.demo.recipe import EXAMPLES, NAME, check_network, show
from deploy.demo.stack import Stack
from deploy.demo.telling import expect, say
from deploy.demo.watch import Watch, steps_of

PATIENCE_SECONDS = 90.0
PREEMPTOR = "eval-release"
PREEMPTED = f"Preempted by higher-priority work ({PREEMPTOR}); waiting to run again"
FALLEN = f"{NAME}-5"
LOST = f"Gang restart: {FALLEN} lost its machine"
RANK_0 = f"{NAME}-0"


def only(lines: Iterable[str], pattern: str) -> int:
    """The number in the one line that matches."""
    found = [match for line in lines if (match := re.fullmatch(pattern, line))]
    expect(len(found) == 1, f"{len(found)} lines say {pattern}")
    return int(found[0][1])


def resumed(stack: Stack) -> int:
    """Show the beginning of the newest attempt's log; answers the step at which it resumed."""
    return only(stack.astra("astraeus", "logs", RANK_0, first=3), r"resuming at step (\d+)")


def table_says(stack: Stack, state: str, reason: str) -> None:
    """Show the table of runs, which has this line."""
    rows = [line.split(maxsplit=3) for line in stack.astra("astraeus", "runs")]
    expect([NAME, "lab-a", state, reason] in rows, f"the table does not say {state}: {reason}")


def preempted(stack: Stack, watch: Watch, save_every: int) -> None:
    """Step 5: higher-priority work takes the room; the gang saves, waits, comes back and goes on where it was."""
    watch.trained_to(2 * save_every, PATIENCE_SECONDS)
    say(f"# {PREEMPTOR} has a higher priority and needs all 16 machines, for 5 s.")
    stack.astra("astraeus", "run", "--file", str(EXAMPLES / f"{PREEMPTOR}.json"))
    run = watch.until(lambda run: run["state"] == "Pending", PATIENCE_SECONDS)
    expect(run["reason"] == PREEMPTED, f"the reason is {run['reason']}")
    table_says(stack, "Pending", PREEMPTED)
    run = watch.running(2, PATIENCE_SECONDS)
    check_network(run)
    expect(run["restarts"]["left"] == 10, f"a preemption was charged: {run['restarts']}")
    watch.trained_to(0, PATIENCE_SECONDS)
    last = stack.astra("astraeus", "logs", RANK_0, "--attempt", "1", last=1)
    saved = only(last, r"stopped after step (\d+), checkpoint saved")
    expect(resumed(stack) == saved + 1, "it did not resume at the step it saved")


def lost_machine(stack: Stack, watch: Watch, save_every: int) -> str:
    """Step 6: a machine under the gang loses power; it starts again elsewhere, and one restart is charged."""
    begin = min(steps_of(watch.trained_to(0, PATIENCE_SECONDS)))
    reached = begin + 2 * save_every
    watch.trained_to(reached, PATIENCE_SECONDS)
    lost: str = next(worker["machine"] for worker in watch.run()["workers"] if worker["name"] == FALLEN)
    say(f"# {lost}, which carries {FALLEN}, loses power. It is declared lost after 15 s of silence, and the restart")
    say("# backs off for 10 s, as in production: both are waited out here, not shortened.")
    stack.astra("dev", "machine", lost, "off")
    run = watch.until(lambda run: run["state"] == "Pending", PATIENCE_SECONDS)
    expect(run["reason"] == LOST, f"the reason is {run['reason']}")
    table_says(stack, "Pending", LOST)
    machine_is(stack, lost, "Down")
    run = watch.running(3, PATIENCE_SECONDS)
    check_network(run)
    expect(lost not in {worker["machine"] for worker in run["workers"]}, f"{lost} has no power, and was given work")
    watch.trained_to(0, PATIENCE_SECONDS)
    at = resumed(stack)
    expect(at >= reached and at % save_every == 0, f"it resumed at step {at}, though it had saved after {reached}")
    show(run, "restarts")
    expect((run["restarts"]["budget"], run["restarts"]["left"]) == (10, 9), "not one restart is charged")
    stack.astra("astraeus", "attempts", NAME)
    attempts_are(watch, (3, None, False))
    return lost


def attempts_are(watch: Watch, last: tuple[int, str | None, bool]) -> None:
    """Every attempt ended as told here, and only the lost machine was charged."""
    attempts, wanted = watch.attempts(), [(1, "preempted", False), (2, "machine_lost", True), last]
    expect(attempts == wanted, f"the attempts are {attempts}")


def killed(stack: Stack, watch: Watch) -> None:
    """The API and the worker process die while it trains, which goes on: not a step is lost or done twice."""
    before = watch.run()
    say("# Someone follows the log while the API and the worker process are killed; astra dev starts others.")
    with stack.following("astraeus", "logs", RANK_0, "--follow") as lines:
        log = [next(lines, "") for _ in range(4)]
        stack.kill("api", "worker")
        run = watch.back(PATIENCE_SECONDS)
        changed = [key for key in ("state", "attempt", "started_at", "restarts", "workers") if run[key] != before[key]]
        expect(not changed or run["state"] == "Succeeded", f"it was noticed: {', '.join(changed)} changed")
        stack.astra("astraeus", "runs")
        log += lines
    total = check_steps(steps_of(log), before)
    only(log, r"resuming at step (\d+)")
    expect(only(log, r"finished (\d+) steps on 64 GPUs") == total, "it did not train to the end")


def check_steps(steps: list[int], run: dict[str, Any]) -> int:
    """No step is missing from the log and none is there twice; answers how many steps there are to train."""
    env = run["spec"]["task_template"]["env"]
    total, every = int(env["STEPS"]), int(env["LOG_EVERY"])
    wanted = sorted({steps[0], *range(steps[0] - steps[0] % every + every, total, every), total - 1})
    expect(steps == wanted, f"the log tells of the steps {steps}")
    return total


def succeeded(stack: Stack, watch: Watch) -> None:
    """Nobody noticed: the same attempt, nothing more charged."""
    run = watch.until(lambda run: run["state"] == "Succeeded", PATIENCE_SECONDS)
    expect(run["attempt"] == 3, f"attempt {run['attempt']} succeeded")
    expect(run["restarts"]["left"] == 9, f"more than one restart is charged: {run['restarts']}")
    stack.astra("astraeus", "runs")
    stack.astra("astraeus", "attempts", NAME)
    attempts_are(watch, (3, "succeeded", False))


def power_on(stack: Stack, watch: Watch, machine: str) -> None:
    """The machine has power again, and takes work once it has proved that nothing old runs there."""
    stack.astra("dev", "machine", machine, "on")
    watch.machine_ready(machine, PATIENCE_SECONDS)
    machine_is(stack, machine, "Ready")


def machine_is(stack: Stack, machine: str, state: str) -> None:
    """Show what is said of a machine, which is in this state."""
    lines = stack.astra("machines", "get", machine, first=3)
    expect(lines[-1].split() == ["State:", state], f"{machine} is not {state}")
