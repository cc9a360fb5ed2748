"""`astra dev` in a directory of its own, and the command line that asks it."""

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from deploy.demo.telling import Unexpected, expect, say

BIN = Path(sysconfig.get_path("scripts"))
STACK_SECONDS = 90


class Stack:
    """`astra dev` in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self.env = {**os.environ, "PATH": path, "ASTRAEUS_DIR": str(directory)}
        say(f"$ export ASTRAEUS_DIR={directory}")
        command = ["astra", "dev", "--port", "0", "--temporal-port", "0"]
        say("$ " + " ".join(command))
        # A session of its own, so that Ctrl-C reaches this program, which then stops the stack in order.
        self.process = subprocess.Popen([str(BIN / command[0]), *command[1:]], env=self.env, start_new_session=True)
        self.facts: dict[str, Any] = {}

    def ready(self) -> None:
        """Wait until the stack takes runs."""
        until = time.monotonic() + STACK_SECONDS
        while not (self.directory / "dev.json").exists():
            expect(self.process.poll() is None, f"astra dev ended with {self.process.returncode}")
            expect(time.monotonic() < until, f"astra dev was not ready within {STACK_SECONDS} s")
            time.sleep(0.05)
        self.read()
        self.env |= {"ASTRALYX_API": self.facts["api"], "ASTRALYX_TOKEN": self.facts["token"]}

    def read(self) -> dict[str, Any]:
        """What dev.json says now."""
        self.facts = json.loads((self.directory / "dev.json").read_text())
        return self.facts

    def client(self) -> httpx.Client:
        """A client of the workspace's API."""
        headers = {"Authorization": f"Bearer {self.facts['token']}"}
        return httpx.Client(base_url=self.facts["api"] + "/", headers=headers, timeout=30)

    def astra(self, *arguments: str, first: int | None = None, last: int | None = None) -> list[str]:
        """Run the command line, show its output and return the lines; `first` is `| head -n`, `last` `| tail -n`."""
        pipe = f" | head -n {first}" if first else f" | tail -n {last}" if last else ""
        say(f"$ astra {' '.join(arguments)}{pipe}")
        done = subprocess.run([str(BIN / "astra"), *arguments], env=self.env, capture_output=True, text=True)
        lines = done.stdout.splitlines()[-last if last else 0 :][:first]
        for line in lines:
            say(line)
        expect(done.returncode == 0, f"astra {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}")
        return lines

    @contextmanager
    def following(self, *arguments: str) -> Iterator[Iterator[str]]:
        """The lines of a command that stays, shown as they come; it must end by itself and without a fault."""
        say(f"$ astra {' '.join(arguments)}")
        command = [str(BIN / "astra"), *arguments]
        with subprocess.Popen(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                yield self._shown(process)
            except BaseException:
                process.kill()
                raise
        expect(process.returncode == 0, f"astra {' '.join(arguments)} ended with {process.returncode}")

    def _shown(self, process: subprocess.Popen[str]) -> Iterator[str]:
        assert process.stdout is not None
        for line in process.stdout:
            say(line.rstrip("\n"))
            yield line.rstrip("\n")

    def kill(self, *parts: str) -> None:
        """SIGKILL these parts at once, and wait until `astra dev` has started others in their place."""
        before = {part: self.read()["pids"][part] for part in parts}
        say(f"$ kill -KILL {' '.join(map(str, before.values()))}  # {' and '.join(parts)}: their pids in dev.json")
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + STACK_SECONDS
        while any(self.read()["pids"][part] in (pid, None) for part, pid in before.items()):
            expect(time.monotonic() < until, f"no new {' and '.join(parts)} within {STACK_SECONDS} s")
            time.sleep(0.05)

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
            say(f"# export ASTRAEUS_DIR={directory} ASTRALYX_API={stack.facts['api']}")
            say(f"# export ASTRALYX_TOKEN={stack.facts['token']}")
            say(f"# To end it: kill {stack.process.pid}; rm -r {directory}")
        else:
            stack.stop()
            shutil.rmtree(directory)
