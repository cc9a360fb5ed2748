"""The API's side of the agent protocol, as small as it can be: what is desired is set, what is reported is kept."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from astraeus.agent import disk, kernel
from astraeus.agent.control import ask
from astraeus.model.agent import (
    DesiredWorker,
    DriveBind,
    Launch,
    LogRequest,
    SyncRequest,
    SyncResponse,
    WorkerReport,
)
from astraeus.model.spec import ConfigFile

LIMIT = 60.0
TOKEN = "ast_machine_secret"
FINAL = ("exited", "failed")


class Api:
    """A real server on a free port of loopback."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 1
        self.desired: dict[str, DesiredWorker] = {}
        self.launches: dict[tuple[str, int], Launch | Response] = {}
        self.launches_asked: list[tuple[str, int]] = []
        self.log_requests: list[LogRequest] = []
        self.logs: dict[str, bytearray] = {}
        self.logs_ended: set[str] = set()
        self.hang_up: set[str] = set()
        self.syncs: list[tuple[float, SyncRequest]] = []
        self.reports: dict[str, list[WorkerReport]] = {}
        self.refuse: int | None = None
        self.refused = 0
        self.code = "conflict"
        self.need_facts: set[str] = set()
        self.facts: dict[str, Any] = {}
        self._thread: threading.Thread | None = None
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        routes = [
            Route("/agent/v1/sync", self.sync, methods=["POST"]),
            Route("/agent/v1/launch/{uid}/{attempt:int}", self.launch),
            Route("/agent/v1/logs/{id}", self.log, methods=["POST"]),
        ]
        if self._listener.fileno() < 0:
            self._listener = socket.socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(("127.0.0.1", self.port))
        config = uvicorn.Config(Starlette(routes=routes), log_level="warning", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        with self.changed:
            self.changed.notify_all()
        if self._thread:
            self._thread.join()
        self._listener.close()

    def _hold(self, request: SyncRequest) -> None:
        until = time.monotonic() + request.wait_seconds
        while request.seen == str(self.version) and not self.log_requests and not self._server.should_exit:
            if not self.changed.wait(until - time.monotonic()) and time.monotonic() >= until:
                return

    def _sync(self, request: SyncRequest) -> SyncResponse:
        with self.changed:
            self.syncs.append((time.monotonic(), request))
            for report in request.workers:
                key = f"{report.run_uid}/{report.attempt}/{report.rank}"
                self.reports.setdefault(key, []).append(report)
            for machine in request.machines:
                if machine.facts:
                    self.facts[machine.name] = machine.facts
            self.changed.notify_all()
            if not request.report_only:
                self._hold(request)
            logs = [] if request.report_only else self.log_requests
            self.log_requests = [item for item in self.log_requests if item not in logs]
            named = {machine.name for machine in request.machines}
            missing = sorted(name for name in named if name not in self.facts)
            if request.report_only or request.seen == str(self.version):
                return SyncResponse(version=str(self.version), need_facts=missing, logs=logs)
            workers = [worker for worker in self.desired.values() if worker.machine in named]
            return SyncResponse(version=str(self.version), workers=workers, need_facts=missing, logs=logs)

    async def sync(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"detail": "who are you"}, 401)
        if self.refuse:
            self.refused += 1
            return JSONResponse({"detail": "another agent holds these machines", "code": self.code}, self.refuse)
        parsed = SyncRequest.model_validate_json(await request.body())
        answer = await run_in_threadpool(self._sync, parsed)
        return Response(answer.model_dump_json(), media_type="application/json")

    async def launch(self, request: Request) -> Response:
        key = (request.path_params["uid"], request.path_params["attempt"])
        self.launches_asked.append(key)
        found = self.launches.get(key)
        if isinstance(found, Launch):
            return Response(found.model_dump_json(), media_type="application/json")
        return found or JSONResponse({"title": "Not found", "detail": f"no attempt {key[1]}"}, 404)

    async def log(self, request: Request) -> Response:
        name = request.path_params["id"]
        kept = self.logs.setdefault(name, bytearray())
        async for chunk in request.stream():
            kept += chunk
            with self.changed:
                self.changed.notify_all()
            if name in self.hang_up:
                break
        with self.changed:
            self.logs_ended.add(name)
            self.changed.notify_all()
        return Response(status_code=204)

    def want(self, *workers: DesiredWorker) -> None:
        with self.changed:
            for worker in workers:
                self.desired[worker.key] = worker
            self.version += 1
            self.changed.notify_all()

    def drop(self, *keys: str) -> None:
        with self.changed:
            for key in keys:
                del self.desired[key]
            self.version += 1
            self.changed.notify_all()

    def order(self, desired: str, *keys: str, grace: float | None = None) -> None:
        change: dict[str, Any] = {"desired": desired}
        if grace is not None:
            change["grace_seconds"] = grace
        self.want(*(self.desired[key].model_copy(update=change) for key in keys))

    def until(self, true: Callable[[], Any], what: str = "") -> Any:
        deadline = time.monotonic() + LIMIT
        with self.changed:
            while not (found := true()):
                left = deadline - time.monotonic()
                assert left > 0, f"never happened: {what}; reports: {self.reports}"
                self.changed.wait(min(left, 0.5))
            return found

    def last(self, key: str) -> WorkerReport | None:
        return self.reports[key][-1] if self.reports.get(key) else None

    def until_state(self, state: str, *keys: str) -> list[WorkerReport]:
        def there() -> list[WorkerReport] | None:
            found = [report for key in keys if (report := self.last(key)) and report.state == state]
            return found if len(found) == len(keys) else None

        result: list[WorkerReport] = self.until(there, f"{keys} {state}")
        return result

    def until_over(self, key: str) -> WorkerReport:
        result: WorkerReport = self.until(lambda: (r := self.last(key)) and r.state in FINAL and r, f"{key} over")
        return result

    def until_syncs(self, count: int = 1) -> None:
        """Until so many more beats were begun and answered."""
        begun = len([1 for _, sync in self.syncs if not sync.report_only])
        self.until(lambda: len([1 for _, sync in self.syncs if not sync.report_only]) > begun + count, "beats")

    def read_log(self, key: str, machine: str, name: str, tail: int | None = None, follow: bool = False) -> None:
        uid, attempt, rank = key.split("/")
        with self.changed:
            self.log_requests.append(
                LogRequest(
                    id=name,
                    run_uid=uid,
                    attempt=int(attempt),
                    rank=int(rank),
                    machine=machine,
                    tail=tail,
                    follow=follow,
                    reply_to=self.url,
                )
            )
            self.changed.notify_all()

    def whole_log(self, key: str, machine: str, name: str, tail: int | None = None, follow: bool = False) -> bytes:
        self.read_log(key, machine, name, tail, follow)
        self.until(lambda: name in self.logs_ended, f"log {name}")
        return bytes(self.logs[name])


class Agent:
    """A real agent process over a directory, and everything it started."""

    def __init__(self, api: Api, directory: Path, fleet: Path) -> None:
        self.api, self.directory, self.fleet = api, directory, fleet
        self.process: subprocess.Popen[bytes] | None = None
        self.errors = directory.parent / "agent.err"
        self.environment: dict[str, str] = {}
        self.token = directory.parent / "token"
        self.token.write_text(TOKEN + "\n")
        self.token.chmod(0o600)

    def command(self) -> list[str]:
        words = [sys.executable, "-m", "astraeus.agent", "--api", self.api.url, "--dir", str(self.directory)]
        return [*words, "--token-file", str(self.token), "--fleet", str(self.fleet)]

    def start(self) -> None:
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command(), stderr=errors, env=os.environ | self.environment, start_new_session=True
            )
        self.api.until_syncs(0)

    def end(self, number: int = signal.SIGKILL) -> int:
        assert self.process
        self.process.send_signal(number)
        return self.process.wait()

    def ask(self, **order: Any) -> dict[str, Any]:
        return ask(self.directory, order)

    def place(self, machine: str, key: str) -> Path:
        uid, attempt, rank = key.split("/")
        return disk.worker_directory(self.directory / "machines" / machine, uid, int(attempt), int(rank))

    def state(self, machine: str, key: str) -> disk.State:
        found = disk.read_state(self.place(machine, key))
        assert found
        return found

    def shim(self, machine: str, key: str) -> int:
        started = disk.read_started(self.place(machine, key))
        assert started
        return started[0]

    def marked(self) -> list[int]:
        """Every process that carries a mark of a worker of this agent."""
        return [pid for pid in kernel.pids() if f"@{self.directory}/".encode() in _environment(pid)]

    def shims(self) -> list[int]:
        started = [disk.read_started(path) for path in self.directory.glob("machines/*/workers/*/*/*")]
        return [found[0] for found in started if found and disk.is_alive(found)]

    def clean(self) -> None:
        if self.process and self.process.poll() is None:
            self.end()
        for pid in self.shims():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while left := self.marked():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def alive(pid: int) -> bool:
    return kernel.start_time(pid) is not None


def worker(key: str, machine: str = "m-0", desired: str = "hold", grace: float = 10.0, **env: str) -> DesiredWorker:
    uid, attempt, rank = key.split("/")
    return DesiredWorker.model_validate(
        {
            "run_uid": uid,
            "attempt": int(attempt),
            "rank": int(rank),
            "machine": machine,
            "name": f"{uid}-{rank}",
            "desired": desired,
            "grace_seconds": grace,
            "env": {"RANK": rank} | env,
        }
    )


def launch(key: str, script: str | list[str], **more: Any) -> Launch:
    """A launch of a shell script, or of a command with arguments."""
    uid, attempt, _ = key.split("/")
    command = ["sh", "-c", script] if isinstance(script, str) else script
    content: dict[str, Any] = {
        "run_uid": uid,
        "attempt": int(attempt),
        "run_name": uid,
        "workspace": "acme/vision",
        "image": "",
        "command": command[0],
        "args": command[1:],
        "env": {},
        "drives": [],
        "configs": [],
    }
    return Launch(**(content | more))


def unmarked(pid: Path, far: bool = False) -> str:
    """A shell command that stays in the worker's session and wipes its environment; far: and has none of its files."""
    steps = f"os.setpgid(0, 0); open('{pid}', 'w').write(str(os.getpid())); {'os.chdir(chr(47)); ' if far else ''}"
    code = f"import os; {steps}os.execve('/bin/sleep', ['sleep', '100'], {{}})"
    return f'{sys.executable} -c "{code}"' + (" > /dev/null 2>&1" if far else "")


def drive(
    path: str, name: str = "data", read_only: bool = False, kind: str = "machine", source: str | None = None
) -> Any:
    return DriveBind.model_validate(
        {
            "workspace": "acme/vision",
            "name": name,
            "kind": kind,
            "path": source,
            "mount_path": path,
            "read_only": read_only,
        }
    )


def config(value: str, *paths: str) -> ConfigFile:
    return ConfigFile(mounts=list(paths), value=value)


@contextlib.contextmanager
def scene(directory: Path, fleet: str) -> Iterator[tuple[Api, Agent]]:
    """An API and an agent with this fleet; nothing of them is left afterwards."""
    api = Api()
    api.start()
    file = directory / "fleet.yaml"
    file.write_text(fleet)
    agent = Agent(api, directory / "agent", file)
    try:
        yield api, agent
    finally:
        agent.clean()
        api.stop()
