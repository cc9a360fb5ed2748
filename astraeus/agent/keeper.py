"""Brings the workers of this agent's machines to the state that is desired of them; obeys, never decides."""

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from astraeus.agent import disk, kernel, processes, shim
from astraeus.agent.births import Nursery
from astraeus.agent.directories import Directories
from astraeus.agent.disk import State
from astraeus.agent.hosts import Host, Worker
from astraeus.agent.launches import Launches, bind, payload
from astraeus.model.agent import Desired, DesiredWorker
from astraeus.model.errors import Invalid

STARTING_AT_ONCE = 16
OBEYS_WITHIN = 5.0
"""How long a shim may take to carry out an order to kill before the agent does it itself."""

SET_PIPE_SIZE, PIPE_BYTES = 1031, 1 << 20
REREAD_SECONDS = 10.0
log = logging.getLogger("astraeus.agent")


class Keeper:
    """All workers of all machines of this agent. `changed` is called for each worker with something to report."""

    def __init__(
        self,
        root: Path,
        hosts: Iterable[Host],
        launches: Launches,
        nursery: Nursery,
        changed: Callable[[Worker], None],
        nofile: tuple[int, int],
    ) -> None:
        self.root = root
        self.hosts = {host.name: host for host in hosts}
        self._launches, self._nursery, self._changed, self._nofile = launches, nursery, changed, list(nofile)
        self._by_path: dict[str, Worker] = {}
        self._directories = Directories()
        self._boots = asyncio.Semaphore(STARTING_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._poke = -1
        self._unread = b""
        self._end = asyncio.Event()
        self.closing = False

    def start(self) -> None:
        """Listen to the shims, then take over every worker that an earlier agent left."""
        path = self.root / "poke"
        if not path.exists():
            os.mkfifo(path, 0o600)
        self._poke = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.fcntl(self._poke, SET_PIPE_SIZE, PIPE_BYTES)
        except OSError:
            log.info("the kernel keeps the pipe of the shims small; late news are found by looking")
        asyncio.get_running_loop().add_reader(self._poke, self._hear)
        for host in self.hosts.values():
            for directory in disk.open_workers(host.directory) if host.powered else ():
                known = disk.read_known(directory)
                if known and known.boot_id == host.boot_id:
                    self._adopt(host, directory)
                else:
                    with suppress(OSError):
                        disk.forget(directory)

    async def reread(self) -> None:
        """Look at the workers now and then, for news that a full pipe lost."""
        while True:
            await asyncio.sleep(REREAD_SECONDS)
            for worker in list(self._by_path.values()):
                if not worker.ended:
                    self._look(worker)
                    await asyncio.sleep(0)

    def apply(self, wanted: Iterable[DesiredWorker], hosts: Iterable[Host]) -> None:
        """Obey the full desired state of these machines. Gates first: a gang opens within milliseconds."""
        mine: dict[str, dict[str, DesiredWorker]] = {host.name: {} for host in hosts if host.reachable}
        for item in wanted:
            if item.machine in mine:
                mine[item.machine][item.key] = item
                if item.desired == "run" and (worker := self.hosts[item.machine].workers.get(item.key)):
                    self._order(worker, "run", item.grace_seconds)
        for name, items in mine.items():
            host = self.hosts[name]
            for key in [key for key in host.workers if key not in items]:
                self._fence(host.workers[key])
            for item in items.values():
                try:
                    self._want(host, item)
                except (Invalid, OSError) as fault:
                    # One worker that cannot be handled must not silence the machine.
                    log.error("cannot do what is desired of %s on %s: %s", item.key, name, fault)

    def _want(self, host: Host, item: DesiredWorker) -> None:
        worker = host.workers.get(item.key)
        if worker is None and not self.closing:
            directory = disk.worker_directory(host.directory, item.run_uid, item.attempt, item.rank)
            worker = self._adopt(host, directory)
            if worker is None and item.desired != "stop":
                worker = self._new(host, directory, item)
                if item.desired == "run":
                    self._never_began(worker, f"{host.name} has lost what it knew of this worker")
                else:
                    worker.starting = self._spawn(self._start(worker, item))
        if worker is not None and (worker.order, worker.grace) != (item.desired, item.grace_seconds):
            self._order(worker, item.desired, item.grace_seconds)

    def _new(self, host: Host, directory: Path, item: DesiredWorker) -> Worker:
        worker = Worker(item.run_uid, item.attempt, item.rank, item.name, host, directory, grace=item.grace_seconds)
        self._register(worker)
        return worker

    def _register(self, worker: Worker) -> None:
        worker.host.workers[worker.key] = worker
        self._by_path[str(worker.directory.relative_to(self.root))] = worker

    def _adopt(self, host: Host, directory: Path) -> Worker | None:
        """The worker that is on disk; None when no shim ever took it."""
        known, state, started = disk.read_known(directory), disk.read_state(directory), disk.read_started(directory)
        if known is None or (state is None and started is None):
            return None
        grace = float(host.facts.stop_grace_seconds)
        worker = Worker(known.run_uid, known.attempt, known.rank, known.name, host, directory, grace=grace)
        worker.forked, worker.shim = True, started
        self._register(worker)
        if state is not None:
            self._take(worker, state)
        if not worker.ended:
            self._watch(worker)
        return worker

    async def _start(self, worker: Worker, item: DesiredWorker) -> None:
        try:
            launch = await self._launches.get(worker.run_uid, worker.attempt)
            # Not among the boots, where a few drives that hang would take all places.
            binds = [await bind(worker, drive, self.root, self._directories) for drive in launch.drives]
            content = payload(worker, item, launch, binds, self.root, self._nofile)
            async with self._boots:
                self._prepare(worker)
                worker.forked = True
                pid = await self._nursery.fork(worker.directory, content)
                worker.shim = (pid, kernel.start_time(pid) or 0)
                self._watch(worker)
                if worker.forgotten and worker.watch:
                    worker.watch.kill()
                await worker.booted.wait()
        except Invalid as refusal:
            self._never_began(worker, refusal.message)
        except OSError as fault:
            self._never_began(worker, f"cannot start on {worker.host.name}: {fault.strerror or fault}")

    def _prepare(self, worker: Worker) -> None:
        worker.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = {
            "run_uid": worker.run_uid,
            "attempt": worker.attempt,
            "rank": worker.rank,
            "name": worker.name,
            "boot_id": worker.host.boot_id,
        }
        disk.write_json(worker.directory / "spec.json", content)

    def _never_began(self, worker: Worker, error: str) -> None:
        """Settle that the worker will never run, unless a shim has it after all."""
        if worker.forgotten or worker.ended:
            return
        try:
            self._prepare(worker)
            if shim.claim(os.getpid(), str(worker.directory)):
                self._settle(worker, {"state": "failed", "error": error})
                return
        except OSError as fault:
            log.warning("cannot write down that %s failed: %s", worker.key, fault)
            self._take(worker, State("failed", time.time(), error=error))
            return
        worker.forked, worker.shim = True, disk.read_started(worker.directory)
        self._watch(worker)

    def _settle(self, worker: Worker, state: dict[str, Any]) -> None:
        shim.write_state(str(worker.directory), state | {"at": time.time()})
        self._look(worker)

    def _watch(self, worker: Worker) -> None:
        if worker.shim is None:
            # Which it was is lost, as an empty file is what a fall of the machine leaves of a young one.
            self._shim_gone(worker)
            return
        try:
            worker.watch = processes.Watch(*worker.shim, lambda: self._shim_gone(worker))
            worker.watched = True
        except ProcessLookupError:
            self._shim_gone(worker)
        except OSError as fault:
            log.warning("cannot watch %s yet: %s", worker.key, fault)
            asyncio.get_running_loop().call_later(1.0, self._watch, worker)

    def _shim_gone(self, worker: Worker) -> None:
        """A shim has ended: as it should, as a second one, or by a force that its worker does not survive."""
        worker.watch = None
        worker.booted.set()
        if worker.forgotten:
            return
        holder = disk.read_started(worker.directory)
        if holder and holder != worker.shim and disk.is_alive(holder):
            worker.shim = holder
            self._watch(worker)
            self._look(worker)
            return
        self._look(worker)
        if not worker.ended and not worker.forgotten:
            self._spawn(self._bury(worker))

    async def _bury(self, worker: Worker) -> None:
        """End what a dead shim left, then say so in its place."""
        if worker.remains:
            await worker.remains.end()
        await processes.sweep(lambda mark: mark == worker.mark)
        if worker.forgotten:
            return
        if not disk.was_taken(worker.directory):
            self._never_began(worker, "its shim could not start")
            return
        opened = worker.state.gate_opened_at if worker.state else None
        error = "its shim was killed, and the worker with it"
        try:
            self._settle(worker, {"state": "exited", "signal": 9, "error": error, "gate_opened_at": opened})
        except OSError as fault:
            # The same full disk may have kept the shim from saying how it ended: no signal is known.
            error = f"how it ended could not be written down: {fault.strerror or fault}"
            log.warning("%s: %s", worker.key, error)
            self._take(worker, State("exited", time.time(), error=error, gate_opened_at=opened))

    def _hear(self) -> None:
        try:
            said = os.read(self._poke, 1 << 16)
        except BlockingIOError:
            return
        *lines, self._unread = (self._unread + said).split(b"\n")
        for line in dict.fromkeys(lines):
            path = line.decode("utf-8", "replace")
            worker = self._by_path.get(path)
            if worker is not None:
                self._look(worker)
            elif len(parts := path.split("/")) == 6 and (host := self.hosts.get(parts[1])) and host.powered:
                directory = self.root / path
                if not (directory / "forgotten").exists():
                    self._adopt(host, directory)

    def _look(self, worker: Worker) -> None:
        state = disk.read_state(worker.directory)
        if state is not None:
            self._take(worker, state)

    def _take(self, worker: Worker, state: State) -> None:
        if state == worker.state or worker.forgotten:
            return
        worker.state = state
        worker.booted.set()
        if worker.ended:
            self._end.set()
        if worker.ended and worker.fenced:
            self._forget(worker)
            return
        self._push(worker)
        self._changed(worker)

    def _order(self, worker: Worker, order: Desired, grace: float) -> None:
        if worker.order == "stop" != order:
            return
        worker.order, worker.grace = order, grace
        if order == "stop" and not worker.forked:
            self._cancel(worker)
            self._never_began(worker, "stopped before it started")
        else:
            self._push(worker)

    def _push(self, worker: Worker) -> None:
        """Pass on the order in force, once the shim is there to take it."""
        if worker.ended or not worker.booted.is_set():
            return
        grace = worker.grace
        line = "kill" if worker.fenced else {"hold": "", "run": "run", "stop": f"stop {grace}"}[worker.order]
        if line and line != worker.sent:
            worker.sent = line if disk.send_order(worker.directory, line) else ""
            if line != "run":
                wait = OBEYS_WITHIN + (0.0 if worker.fenced else grace)
                asyncio.get_running_loop().call_later(wait, self._force, worker, line)

    def _force(self, worker: Worker, line: str) -> None:
        """Kill a worker whose shim did not; what the shim would have reported is then reported for it."""
        if not worker.ended and not worker.forgotten and worker.sent in ("", line) and worker.watch:
            log.warning("the shim of %s does not obey; killing it", worker.key)
            worker.watch.kill()

    def _fence(self, worker: Worker) -> None:
        """Nobody asks for the worker any more: everything of it is killed at once, and it is forgotten."""
        if worker.ended or not worker.forked:
            self._cancel(worker)
            self._forget(worker)
        elif not worker.fenced:
            worker.fenced = True
            self._push(worker)

    def _cancel(self, worker: Worker) -> None:
        if worker.starting is not None and not worker.forked:
            worker.starting.cancel()

    def _forget(self, worker: Worker) -> None:
        self._drop(worker)
        if worker.directory.exists():
            with suppress(OSError):
                disk.forget(worker.directory)

    def _drop(self, worker: Worker) -> None:
        worker.forgotten = True
        worker.booted.set()
        self._end.set()
        worker.host.workers.pop(worker.key, None)
        self._by_path.pop(str(worker.directory.relative_to(self.root)), None)

    async def abandon(self, host: Host) -> None:
        """Kill the workers of a machine and know nothing of them any more; nothing is written of it."""
        workers = list(host.workers.values())
        for worker in workers:
            self._cancel(worker)
            self._drop(worker)
            if worker.watch:
                worker.watch.kill()
        for remains in [worker.remains for worker in workers]:
            if remains:
                await remains.end()

    async def stop_all(self) -> None:
        """Stop every worker with its grace, start none any more, and return when all have ended."""
        self.closing = True
        for worker in list(self._by_path.values()):
            if worker.order != "stop":
                self._order(worker, "stop", worker.grace)
        while any(not worker.ended for worker in self._by_path.values()):
            self._end.clear()
            await self._end.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()):
            log.error("a task of the agent failed", exc_info=fault)

    async def close(self) -> None:
        """Let go of everything; the workers go on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self._by_path.values():
            if worker.watch:
                worker.watch.close()
        if self._poke >= 0:
            asyncio.get_running_loop().remove_reader(self._poke)
            os.close(self._poke)
            self._poke = -1
