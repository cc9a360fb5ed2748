"""Looks at the run so often that short states are seen too, and shows each change as the table of runs would."""

import re
import time
from collections.abc import Callable
from typing import Any

import httpx

from deploy.demo.telling import expect, say

GLANCE_SECONDS, LOOK_SECONDS = 0.004, 0.1
FINAL = {"Succeeded", "Failed", "Cancelled"}
STEP = re.compile(r"step (\d+)/(\d+) loss \d+\.\d+ on 64 GPUs")


def steps_of(lines: list[str]) -> list[int]:
    """The steps that a log's lines tell of."""
    return [int(found[1]) for line in lines if (found := STEP.fullmatch(line))]


class Watch:
    """One run, seen through the API."""

    def __init__(self, client: httpx.Client, name: str) -> None:
        self.client, self.name = client, name
        self.seen: list[tuple[str, str]] = []

    def run(self) -> dict[str, Any]:
        """The run as it is now."""
        return self.note(self.get())

    def get(self, path: str = "") -> dict[str, Any]:
        """What the API says of the run."""
        answer: dict[str, Any] = self.client.get(f"runs/{self.name}{path}").raise_for_status().json()
        return answer

    def note(self, run: dict[str, Any]) -> dict[str, Any]:
        """Show the run's line if it says something new."""
        now = (run["state"], run["reason"])
        if self.seen[-1:] != [now]:
            self.seen.append(now)
            say(f"{self.name}  {run['cluster']}  {now[0]:<9}  {now[1]}")
        return run

    def until(
        self, wanted: Callable[[dict[str, Any]], bool], seconds: float, pause: float = LOOK_SECONDS
    ) -> dict[str, Any]:
        """Watch until the run is as wanted; one that ended otherwise never will be."""
        end = time.monotonic() + seconds
        while not wanted(run := self.run()):
            expect(run["state"] not in FINAL, f"the run ended: {run['state']}, {run['reason']}")
            expect(time.monotonic() < end, f"nothing new for {seconds:.0f} s: {run['state']}, {run['reason']}")
            time.sleep(pause)
        return run

    def back(self, seconds: float) -> dict[str, Any]:
        """The run, as soon as there is an API again to tell of it."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.run()
            except httpx.HTTPError as fault:
                expect(time.monotonic() < end, f"the API is not back after {seconds:.0f} s: {fault!r}")
                time.sleep(LOOK_SECONDS)

    def running(self, attempt: int, seconds: float) -> dict[str, Any]:
        """Watch until this attempt runs."""
        run = self.until(lambda run: run["state"] == "Running", seconds)
        expect(run["attempt"] == attempt, f"attempt {run['attempt']} runs, not {attempt}")
        return run

    def trained_to(self, step: int, seconds: float) -> list[str]:
        """Wait until rank 0 tells of this step or a later one; answers the log of the latest attempt."""
        end = time.monotonic() + seconds
        while max(steps_of(lines := self.log()), default=-1) < step:
            expect(time.monotonic() < end, f"no step {step} within {seconds:.0f} s; the log ends with {lines[-1:]}")
            self.run()
            time.sleep(LOOK_SECONDS)
        return lines

    def log(self) -> list[str]:
        """Rank 0's log of the latest attempt; empty while there is none."""
        answer = self.client.get(f"runs/{self.name}/logs/{self.name}-0")
        return [] if answer.status_code in (404, 409) else answer.raise_for_status().text.splitlines()

    def attempts(self) -> list[tuple[int, str | None, bool]]:
        """Number, cause and charge of every attempt."""
        return [(item["attempt"], item["cause"], item["charged"]) for item in self.get("/attempts")["items"]]

    def machine_ready(self, name: str, seconds: float) -> None:
        """Wait until a machine takes work again."""
        end = time.monotonic() + seconds
        while (state := self.client.get(f"machines/{name}").raise_for_status().json()["state"]) != "Ready":
            expect(time.monotonic() < end, f"{name} is {state} after {seconds:.0f} s")
            time.sleep(LOOK_SECONDS)
