"""The 64-GPU recipe on a virtual fleet, from an empty directory to `Succeeded`: what `make demo` runs.

Lines that begin with `$` are what is asked, lines with `#` say what goes on; every other line is the answer of
Astraeus itself. Ends with 1 as soon as anything is not as the recipe says.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from astraeus.agent import control

EXAMPLES = Path(__file__).parent / "examples"
BIN = Path(sysconfig.get_path("scripts"))
NAME = "resnet-64gpu"
LATE = ("m-6", "m-7")
SIX_READY = "Starting together: 6 of 8 ready"
NETWORK = {
    "words": "one leaf group",
    "estimate": {"busbw_gbps": 368.4, "words": "one leaf switch", "basis": "8 × 400 Gb/s rails, × 0.92"},
}
STACK_SECONDS = 90
GLANCE_SECONDS, LOOK_SECONDS = 0.004, 0.2
FINAL = {"Succeeded", "Failed", "Cancelled"}


class Unexpected(Exception):
    """Something is not as the recipe says."""


def say(text: str = "") -> None:
    """One line to the reader, at once."""
    print(text, flush=True)


def expect(condition: object, complaint: str) -> None:
    """Go on only if the condition holds."""
    if not condition:
        raise Unexpected(complaint)


def specification(torch: bool, steps: int | None) -> dict[str, Any]:
    """The recipe's specification with the script put in as `jq --rawfile` does."""
    name, script = ("train-64gpu.json", "train_ddp.py") if torch else ("demo-64gpu.json", "train_numpy.py")
    spec: dict[str, Any] = json.loads((EXAMPLES / name).read_text())
    task = spec["spec"]["task_template"]
    task["configs"] = [{"mounts": [f"/app/{script}"], "value": (EXAMPLES / script).read_text()}]
    if torch or steps:
        task["env"]["STEPS"] = str(steps or 10)
    say(f"# {name} with {script} as /app/{script}, and STEPS={task['env']['STEPS']}")
    return spec


class Stack:
    """`astra dev` in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
        command = ["astra", "dev", "--dir", str(directory), "--port", "0", "--temporal-port", "0"]
        say("$ " + " ".join(command))
        # A session of its own, so that Ctrl-C reaches this program, which then stops the stack in order.
        self.process = subprocess.Popen([str(BIN / command[0]), *command[1:]], env=self.env, start_new_session=True)
        self.facts: dict[str, Any] = {}

    def ready(self) -> None:
        """Wait until the stack takes runs."""
        file, until = self.directory / "dev.json", time.monotonic() + STACK_SECONDS
        while not file.exists():
            expect(self.process.poll() is None, f"astra dev ended with {self.process.returncode}")
            expect(time.monotonic() < until, f"astra dev was not ready within {STACK_SECONDS} s")
            time.sleep(0.05)
        self.facts = json.loads(file.read_text())
        self.env |= {"ASTRALYX_API": self.facts["api"], "ASTRALYX_TOKEN": self.facts["token"]}

    def astra(self, *arguments: str, last: int | None = None) -> list[str]:
        """Run the command line, show its output and return the lines; `last` is `| tail -n`."""
        say(f"$ astra {' '.join(arguments)}" + (f" | tail -n {last}" if last else ""))
        done = subprocess.run([str(BIN / "astra"), *arguments], env=self.env, capture_output=True, text=True)
        lines = done.stdout.splitlines()[-last if last else 0 :]
        for line in lines:
            say(line)
        expect(done.returncode == 0, f"astra {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}")
        return lines

    def stop(self) -> None:
        """Stop the stack and everything it started."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Unexpected("astra dev did not stop within 60 s") from None
        left = [name for name, pid in self.facts.get("pids", {}).items() if Path(f"/proc/{pid}").exists()]
        expect(not left, f"still running after the stop: {', '.join(left)}")

    def last_words(self) -> Iterator[str]:
        """The end of what each part logged, for whoever has to find out."""
        for log in sorted((self.directory / "logs").glob("*.log")):
            yield f"--- {log.name}"
            yield from log.read_text(errors="replace").splitlines()[-15:]


class Watch:
    """Looks at the run so often that short states are seen too, and shows each change as the table of runs would."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.seen: list[tuple[str, str]] = []

    def run(self) -> dict[str, Any]:
        """The run as it is now."""
        answer = self.client.get(f"runs/{NAME}").raise_for_status()
        return self.note(answer.json())

    def note(self, run: dict[str, Any]) -> dict[str, Any]:
        """Show the run's line if it says something new."""
        now = (run["state"], run["reason"])
        if self.seen[-1:] != [now]:
            self.seen.append(now)
            say(f"{NAME}  {run['cluster']}  {now[0]:<9}  {now[1]}")
        return run

    def until(
        self, wanted: Callable[[dict[str, Any]], bool], seconds: float, pause: float = GLANCE_SECONDS
    ) -> dict[str, Any]:
        """Watch until the run is as wanted; one that ended otherwise never will be."""
        end = time.monotonic() + seconds
        while not wanted(run := self.run()):
            expect(run["state"] not in FINAL, f"the run ended: {run['state']}, {run['reason']}")
            expect(time.monotonic() < end, f"nothing new for {seconds:.0f} s: {run['state']}, {run['reason']}")
            time.sleep(pause)
        return run


def start_together(stack: Stack, watch: Watch, seconds: float) -> dict[str, Any]:
    """The gang waits at the barrier for the members that are late, and then starts as one."""
    watch.until(lambda run: run["reason"] == SIX_READY, seconds)
    say(f"# Six wait for the two. The network of {' and '.join(LATE)} is joined again:")
    cut(stack, False)
    run = watch.until(lambda run: run["state"] == "Running", seconds)
    states = list(dict.fromkeys(state for state, _ in watch.seen))
    expect(states == ["Pending", "Starting", "Running"], f"the run went through {states}")
    return run


def cut(stack: Stack, away: bool) -> None:
    """Cut the network of two virtual machines, or join it again; their leases last longer than this takes."""
    for machine in LATE:
        control.unplug(stack.directory / "agent", machine, away)


def check_network(run: dict[str, Any]) -> None:
    """It got what the recipe promises."""
    network = run["network"]
    expect(network["network"].startswith("leaf:leaf-r0-7-g"), f"placed on {network['network']}")
    expect({key: network[key] for key in NETWORK} == NETWORK, f"the network is {network}")
    workers = run["workers"]
    machines = {worker["machine"] for worker in workers}
    expect(len(machines) == len(workers) == 8, f"{len(workers)} workers on {sorted(machines)}")
    expect(all(len(worker["gpus"]) == 8 for worker in workers), "a worker has not 8 GPUs")


def submit(client: httpx.Client, watch: Watch, spec: dict[str, Any]) -> None:
    """The recipe's POST."""
    say(f'$ curl -X POST "$ASTRALYX_API/runs" --data-binary @…  # then GET runs/{NAME}, often')
    answer = client.post("runs", json=spec)
    expect(answer.status_code == 201, f"POST /runs answered {answer.status_code}: {answer.text}")
    watch.note(answer.json())


def recipe(stack: Stack, torch: bool, steps: int | None) -> None:
    """The recipe's steps 2 to 4."""
    patience = 600.0 if torch else 60.0
    spec = specification(torch, steps)
    headers = {"Authorization": f"Bearer {stack.facts['token']}"}
    with httpx.Client(base_url=stack.facts["api"] + "/", headers=headers, timeout=30) as client:
        watch = Watch(client)
        say(f"# The network of {' and '.join(LATE)} is cut for a moment, so that two members will be late.")
        cut(stack, True)
        submit(client, watch, spec)
        run = start_together(stack, watch, patience)
        check_network(run)
        say(f'$ curl "$ASTRALYX_API/runs/{NAME}" | jq .network')
        say(json.dumps(run["network"], indent=2, ensure_ascii=False))
        stack.astra("astraeus", "runs")
        watch.until(lambda run: run["state"] == "Succeeded", patience, LOOK_SECONDS)
    lines = stack.astra("astraeus", "logs", f"{NAME}-0", last=3)
    expect(any(re.match(r"step \d+/\d+ loss \d+\.\d+ on 64 GPUs$", line) for line in lines), "no step in the log")


def clean_up(stack: Stack) -> None:
    """The recipe's last step."""
    stack.astra("astraeus", "delete", NAME)
    lines = stack.astra("astraeus", "runs")
    expect(not any(NAME in line for line in lines), "the run is still listed")


@contextmanager
def stack_of(keep: bool) -> Iterator[Stack]:
    """A stack that is gone at the end, with its directory, unless it is to be kept and all went well."""
    directory = Path(tempfile.mkdtemp(prefix="astraeus-demo-"))
    stack = Stack(directory)
    try:
        stack.ready()
        yield stack
    except BaseException:
        for line in stack.last_words():
            say(line)
        keep = False
        raise
    finally:
        if keep:
            say(f"# Left up: {stack.facts['console']} (Temporal: {stack.facts['temporal_ui']})")
            say(f"# export ASTRALYX_API={stack.facts['api']} ASTRALYX_TOKEN={stack.facts['token']}")
            say(f"# To end it: kill {stack.process.pid}; rm -r {directory}")
        else:
            stack.stop()
            shutil.rmtree(directory)


def main() -> int:
    """Run the demo; answers the exit code."""
    parser = argparse.ArgumentParser(description="The 64-GPU recipe on a virtual fleet.")
    parser.add_argument("--torch", action="store_true", help="train with PyTorch under torchrun: 64 ranks")
    parser.add_argument("--steps", type=int, help="how many steps to train")
    parser.add_argument("--keep", action="store_true", help="leave the stack up at the end")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        with stack_of(options.keep) as stack:
            recipe(stack, options.torch, options.steps)
            if not options.keep:
                clean_up(stack)
    except (Unexpected, httpx.HTTPError) as fault:
        say(f"# NOT as it should be: {fault}")
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"# Done in {time.monotonic() - began:.0f} s: a gang of 64 GPUs placed, started together, trained, gone.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
