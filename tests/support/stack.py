"""The whole embedded stack as a user starts it: a process of its own, on free ports, in a folder of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil

READY_SECONDS = 90.0
STOP_SECONDS = 90.0


class DevStack:
    """`astra dev` on `directory`; may be stopped, killed and started again on the same state."""

    def __init__(
        self, directory: Path, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.arguments = list(arguments)
        self.environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "DevStack":
        """Start it and wait until it takes runs."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "worker.dev", "--dir", str(self.directory)]
        command += ["--port", "0", "--temporal-port", "0", *self.arguments]
        with (self.directory / "output").open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=self.environment)
        try:
            self.until(lambda: self.dev_json.exists() or self.process.poll() is not None, READY_SECONDS, "dev.json")
            if self.process.poll() is not None:
                raise AssertionError(f"astra dev ended: {self.output}")
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def dev_json(self) -> Path:
        return self.directory / "dev.json"

    @property
    def facts(self) -> dict[str, Any]:
        """What dev.json says now."""
        found: dict[str, Any] = json.loads(self.dev_json.read_text())
        return found

    @property
    def output(self) -> str:
        return (self.directory / "output").read_text()

    @property
    def access(self) -> dict[str, str]:
        """The environment in which `astra`, curl and the client find the stack."""
        facts = self.facts
        return {"ASTRALYX_API": facts["api"], "ASTRALYX_TOKEN": facts["token"]}

    def api(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One call of the workspace's API."""
        facts = self.facts
        headers = {"authorization": f"Bearer {facts['token']}", **more.pop("headers", {})}
        return httpx.request(method, facts["api"] + path, headers=headers, timeout=30, **more)

    def astra(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the command line against the stack."""
        code = "from astraeus.cli.main import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**self.environment, **self.access, "ASTRAEUS_DIR": str(self.directory), "COLUMNS": "80"},
            capture_output=True,
            text=True,
            timeout=120,
            check=check,
        )

    def run(self, name: str) -> dict[str, Any]:
        """The run as the API shows it."""
        answer = self.api("GET", f"/runs/{name}")
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def submit(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.api("POST", "/runs", json=spec)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def reach(self, name: str, *states: str, seconds: float = 60.0) -> dict[str, Any]:
        """The run once it is in one of these states; the stack's own event stream says when to look again."""
        return self.see(name, lambda run: run["state"] in states, seconds, " or ".join(states))

    def see(
        self, name: str, seen: Callable[[dict[str, Any]], bool], seconds: float = 60.0, what: str = "it"
    ) -> dict[str, Any]:
        """The run once `seen` holds of it."""
        found: dict[str, Any] = {}

        def look() -> bool:
            nonlocal found
            try:
                found = self.run(name)
            except httpx.HTTPError:
                return False
            return seen(found)

        self.until(look, seconds, lambda: f"{what} of {name}: {found.get('state')}: {found.get('reason')}")
        return found

    def until(self, ready: Callable[[], bool], seconds: float, what: str | Callable[[], str]) -> None:
        """Look until `ready`, for at most `seconds`."""
        ends = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > ends:
                raise AssertionError(f"no {what if isinstance(what, str) else what()} within {seconds} s")
            time.sleep(0.02)

    def kill(self, part: str) -> int:
        """SIGKILL one part; answers the pid it had."""
        pid = int(self.facts["pids"][part])
        os.kill(pid, signal.SIGKILL)
        return pid

    def killed_and_back(self, part: str) -> None:
        """SIGKILL one part and wait until the supervisor has another."""
        pid = self.kill(part)
        self.until(lambda: self.facts["pids"][part] not in (pid, None), 30, f"new {part}")

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop it as Ctrl-C does."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(STOP_SECONDS)

    def processes(self) -> list[psutil.Process]:
        """Every live process that belongs to this stack: its parts, shims and workers."""
        marker = str(self.directory)
        found = []
        for process in psutil.process_iter():
            try:
                told = [*process.cmdline(), *process.environ().values()]
                other = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
                if other and any(marker in word for word in told):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def __enter__(self) -> "DevStack":
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop it; whatever is left is ended by pid, and is a fault of the stack."""
        self.stop()
        left = self.processes()
        for process in left:
            process.kill()
        psutil.wait_procs(left, 5)
        assert not left, f"processes left: {left}"
