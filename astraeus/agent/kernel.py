"""The kernel calls that Python lacks, and what /proc says of processes. Standard library only: shims use it."""

import ctypes
import errno
import os
import time
from collections import defaultdict
from typing import NamedTuple

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 32, 4096, 8192, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "s390x": 217, "riscv64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int | bytes) -> None:
    """`prctl(2)` with one argument."""
    _check(_libc.prctl(option, ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)), "prctl")


def unshare(flags: int) -> None:
    """`unshare(2)`."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """`mount(2)`."""
    filesystem = kind.encode() if kind else None
    call = _libc.mount(
        os.fsencode(source), os.fsencode(target), filesystem, ctypes.c_ulong(flags), options.encode() or None
    )
    _check(call, f"mount {target}")


def detach(target: str) -> None:
    """Unmount a whole tree, at once for us and for others when they are done with it."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """`pivot_root(2)`, which the C library does not wrap."""
    number = PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"pivot_root on {os.uname().machine}")
    _check(_libc.syscall(number, os.fsencode(new), os.fsencode(old)), "pivot_root")


class Stat(NamedTuple):
    """What the kernel says of a process; it started that many clock ticks after boot."""

    letter: str
    parent: int
    session: int
    start: int

    @property
    def dead(self) -> bool:
        """Whether only its entry is left."""
        return self.letter in "ZX"


def stat_of(pid: int) -> Stat | None:
    """The process of that number, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def start_time(pid: int) -> int | None:
    """When a process started, in ticks since boot; None when it is gone or a zombie. With the pid it is unique."""
    found = stat_of(pid)
    return found.start if found and not found.dead else None


def pids() -> list[int]:
    """Every process there is."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(root: int) -> list[int]:
    """Children of a process, their children, and so on, from one look at /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid in pids():
        found = stat_of(pid)
        if found:
            children[found.parent].append(pid)
    reached, left = [], [root]
    while left:
        below = children.get(left.pop(), [])
        reached += below
        left += below
    return reached


def oom_kills() -> int:
    """How often the kernel has killed for want of memory in our own cgroup; 0 where it does not say."""
    try:
        with open("/proc/self/cgroup") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return 0
    counts = []
    for _, controllers, path in groups:
        if controllers == "":
            counts.append(kills_counted(f"/sys/fs/cgroup{path}/memory.events"))
        elif "memory" in controllers.split(","):
            counts.append(kills_counted(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
    return max(counts, default=0)


def kills_counted(path: str) -> int:
    """The `oom_kill` count in a control group's file, of either version; 0 where there is none."""
    try:
        with open(path) as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except (OSError, ValueError, IndexError):
        return 0


def log_says_oom(pid: int, since: float) -> bool:
    """Whether the kernel's log names the process as killed for want of memory, after `since` (seconds since boot)."""
    wanted = b"Killed process %d " % pid
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            try:
                record = os.read(log, 8192)
            except BrokenPipeError:
                continue
            if wanted in record and int(record.split(b",", 3)[2]) / 1e6 >= since:
                return True
    except (OSError, ValueError, IndexError):
        return False
    finally:
        os.close(log)
    return False
