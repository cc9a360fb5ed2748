"""The keeper of one worker: it outlives the agent, owns the process group, the log and the exit record.

Forked from the nursery, so it is there in a millisecond. Everything it says is in files of the worker's directory:
`started` (made once, by the one shim that may run the worker), `control` (a pipe for orders), `state.json`.
Standard library only.
"""

import json
import os
import resource
import select
import shutil
import signal
import time
from contextlib import suppress
from typing import Any, NoReturn

from astraeus.agent import kernel, mounts

TICKS = os.sysconf("SC_CLK_TCK")
ERROR_LENGTH = 500
WRITE_AGAIN_SECONDS = 1.0
WRITE_TRIES_AT_THE_END = 30


def run(directory: str, payload: bytes) -> None:
    """Keep the worker of this directory until it has ended. A second shim for it ends at once."""
    os.chdir(directory)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGCHLD})
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    kernel.prctl(kernel.PR_SET_NAME, b"astraeus-shim")
    if claim(os.getpid()):
        Shim(json.loads(payload)).keep()


def claim(pid: int, directory: str = ".") -> bool:
    """Take the right to decide this worker's life, which exists once: a hard link either comes to be or does not."""
    draft = os.path.join(directory, f"started.{pid}")
    try:
        with open(draft, "w") as file:
            file.write(f"{pid} {kernel.start_time(pid)}")
        os.link(draft, os.path.join(directory, "started"))
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    return True


def write_state(directory: str, state: dict[str, Any]) -> None:
    """Replace the worker's state in one step."""
    path = os.path.join(directory, "state.json")
    with open(path + ".new", "w") as file:
        json.dump(state, file)
    os.replace(path + ".new", path)


class Shim:
    """One worker from the fork of its process to the death of the last of its descendants."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.state: dict[str, Any] = {"state": "preparing"}
        self.log = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(self.log, 2)
        os.mkfifo("control", 0o600)
        self.control = os.open("control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.gate_out, self.gate_in = os.pipe()
        self.status_out, self.status_in = os.pipe()
        self.woken, self.waker = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.waker, False)
        self.deadline: float | None = None
        self.ours = False
        self.ended: int | None = None
        self.unread = b""
        self.told_all = False
        self.unwritten = False

    def keep(self) -> None:
        """Start the process, obey orders, and record how it ended."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        if self.spec["notice"]:
            with suppress(OSError):
                os.write(self.log, self.spec["notice"].encode() + b"\n")
        oom_before = kernel.oom_kills()
        self.pid = os.fork()
        if self.pid == 0:
            Child(self).run()
        os.close(self.gate_out)
        os.close(self.status_in)
        self.tell(pid=self.pid, pgid=self.pid, pid_started=kernel.start_time(self.pid))
        self.spec = {name: self.spec[name] for name in ("poke", "key")}
        self.attend()
        self.kill_all()
        self.conclude(oom_before)

    def tell(self, **news: Any) -> None:
        """Take over news and have the agent know them."""
        self.state.update(news, at=time.time())
        self.write()

    def write(self) -> None:
        """Write the state down and poke the agent; it is no matter if none listens. A full disk may have room later."""
        try:
            write_state(".", self.state)
        except OSError:
            self.unwritten = True
            return
        self.unwritten = False
        with suppress(OSError):
            poke = os.open(self.spec["poke"], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with suppress(OSError):
                os.write(poke, self.spec["key"].encode() + b"\n")
            os.close(poke)

    def attend(self) -> None:
        """Wait for orders, the process's own progress and its end."""
        poller = select.poll()
        for source in (self.control, self.status_out, self.woken):
            poller.register(source, select.POLLIN)
        while self.ended is None:
            for source, _ in poller.poll(self.patience()):
                if source == self.control:
                    self.obey(os.read(self.control, 4096))
                elif source == self.status_out:
                    if not self.progress():
                        poller.unregister(self.status_out)
                else:
                    drain(self.woken)
            if self.unwritten:
                self.write()
            self.reap()
            if self.ended is None and self.deadline is not None and time.monotonic() >= self.deadline:
                self.ours = True
                return
        while self.progress():
            pass

    def patience(self) -> float | None:
        """How many milliseconds there are until something is due; None when nothing is."""
        due = [] if self.deadline is None else [max(0.0, self.deadline - time.monotonic())]
        due += [WRITE_AGAIN_SECONDS] if self.unwritten else []
        return min(due) * 1000 if due else None

    def obey(self, orders: bytes) -> None:
        """Orders are lines: `run`, `stop <grace seconds>`, `kill`. Each may be repeated."""
        for order in orders.decode().splitlines():
            word, _, argument = order.partition(" ")
            if word == "run":
                with suppress(OSError):
                    os.write(self.gate_in, b"g")
            elif word == "stop":
                self.stop(float(argument))
            elif word == "kill":
                self.deadline = time.monotonic()

    def stop(self, grace: float) -> None:
        """Ask the whole process group to end, once; a repeated order can only shorten the grace."""
        until = time.monotonic() + grace
        if self.deadline is not None:
            self.deadline = min(self.deadline, until)
            return
        self.deadline = until
        for number in (signal.SIGTERM, signal.SIGCONT):
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                # The process has not become the leader of its group yet.
                with suppress(ProcessLookupError):
                    os.kill(self.pid, number)

    def progress(self) -> bool:
        """Read what the process says on its way to the command; False when it has said all."""
        if self.told_all:
            return False
        said = os.read(self.status_out, 65536)
        *lines, self.unread = (self.unread + said).split(b"\n")
        for line in lines:
            word, _, argument = line.decode("utf-8", "replace").partition(" ")
            if word == "arrived":
                self.tell(state="arrived")
            elif word == "go":
                self.state["gate_opened_at"] = float(argument)
            else:
                self.state["error"] = argument[:ERROR_LENGTH]
        if said:
            return True
        self.told_all = True
        if "gate_opened_at" in self.state and "error" not in self.state:
            self.tell(state="running")
        return False

    def reap(self) -> bool:
        """Bury the dead; True when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.pid:
                self.ended = status

    def kill_all(self) -> None:
        """SIGKILL everything below, also what left the group or the session, until nothing is left."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.ended is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        poller = select.poll()
        poller.register(self.woken, select.POLLIN)
        wait = 5
        while not self.reap():
            for pid in kernel.descendants(os.getpid()):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            poller.poll(wait)
            drain(self.woken)
            wait = min(1000, wait * 2)

    def conclude(self, oom_before: int) -> None:
        """Record how the worker ended."""
        code = os.waitstatus_to_exitcode(self.ended or 0)
        began = (self.state.get("pid_started") or 0) / TICKS
        if "error" in self.state:
            self.tell(state="failed")
        elif code >= 0 and "gate_opened_at" not in self.state:
            self.tell(state="failed", error="its process ended before the command could run")
        elif code >= 0:
            self.tell(state="exited", exit_code=code)
        else:
            suspect = code == -signal.SIGKILL and not self.ours
            oom = suspect and (kernel.log_says_oom(self.pid, began) or kernel.oom_kills() > oom_before)
            self.tell(state="exited", signal=-code, oom=oom)
        for used in ("scratch", "staging"):
            shutil.rmtree(used, ignore_errors=True)
        # What filled the disk may have been in there, or will go. Without a word from here nobody knows the exit code.
        for _ in range(WRITE_TRIES_AT_THE_END):
            if not self.unwritten:
                return
            self.write()
            if self.unwritten:
                time.sleep(WRITE_AGAIN_SECONDS)


class Child:
    """The worker's process on its way to the user's command."""

    def __init__(self, shim: Shim) -> None:
        self.spec = shim.spec
        self.shim = os.getppid()
        self.gate, self.status, self.log = shim.gate_out, shim.status_in, shim.log
        os.close(shim.gate_in)

    def run(self) -> NoReturn:
        """Prepare, arrive, wait for the gate, become the command. Never returns."""
        try:
            self.prepare()
            self.say("arrived")
            if os.read(self.gate, 1) == b"g":
                self.say(f"go {time.time()}")
                os.execvpe(self.spec["argv"][0], self.spec["argv"], self.spec["env"])
        except mounts.MountFault as fault:
            self.say(f"error {fault}")
        except OSError as fault:
            named = f" ({fault.filename})" if fault.filename else ""
            self.say(f"error cannot start {self.spec['argv'][0]}: {fault.strerror}{named}")
        except Exception as fault:
            self.say(f"error {type(fault).__name__}: {fault}")
        os._exit(127)

    def prepare(self) -> None:
        """A session, the mounts, clean signals and files; then check that the command is there."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        binds = [mounts.Bind(**bind) for bind in self.spec["binds"]]
        files = [mounts.File(**file) for file in self.spec["files"]]
        scratch = os.path.join(os.getcwd(), "scratch")
        os.mkdir(scratch, 0o700)
        if binds or files:
            os.mkdir("staging", 0o700)
            mounts.enter(binds, files, os.path.join(os.getcwd(), "staging"))
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self.shim:
            os._exit(127)
        os.umask(0o022)
        os.chdir(scratch)
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(self.spec["nofile"]))
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        for source, target in ((null, 0), (self.log, 1), (self.log, 2)):
            os.dup2(source, target)
        self.find(self.spec["argv"][0])
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def find(self, command: str) -> None:
        """Fail unless the command can be found the way exec will look for it."""
        if shutil.which(command, path=self.spec["env"].get("PATH", os.defpath)) is None:
            raise mounts.MountFault(f"no such command: {command}")

    def say(self, line: str) -> None:
        """Tell the shim."""
        os.write(self.status, line.replace("\n", " ").encode("utf-8", "replace") + b"\n")


def drain(pipe: int) -> None:
    """Empty a pipe that only wakes."""
    with suppress(BlockingIOError):
        while os.read(pipe, 4096):
            pass
