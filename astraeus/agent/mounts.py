"""A worker's own view of the file system: drives and files at their paths, and nothing left behind on the machine.

A mount point that does not exist is never made on the machine's file systems. The nearest directory that exists is
replaced, in the worker's namespace only, by an empty in-memory one that carries every entry of the old one as a bind
mount; `/` itself is replaced by a new root in the same way. The one exception is a path inside a drive that the worker
may write: there the mount point is made in the drive, since hiding the drive's directory would lose what is written.
Standard library only: shims use it.
"""

import itertools
import os
import stat
from dataclasses import dataclass, field

from astraeus.agent import kernel

REFUSED = ("/proc", "/sys")


class MountFault(Exception):
    """A mount that cannot be had, in words for the user."""


@dataclass(frozen=True)
class Bind:
    """A directory of the machine at a path."""

    name: str
    source: str
    target: str
    read_only: bool


@dataclass(frozen=True)
class File:
    """A text at a path."""

    target: str
    value: str


@dataclass
class View:
    """The view being built, seen from a private root: /old is the machine's, /new becomes the worker's."""

    own: set[int] = field(default_factory=set)
    writable: list[str] = field(default_factory=list)
    staged: int = 0

    def exists(self, path: str) -> bool:
        """Whether the path is there in the worker's view."""
        return os.path.lexists("/new" + path)

    def point(self, target: str, directory: bool) -> str:
        """A mount point for the target, of the right kind."""
        inside = "/new" + target
        if self.exists(target):
            if os.path.isdir(inside) != directory:
                raise MountFault(f"{target} is {'not ' if directory else ''}a directory on this machine")
            return inside
        ancestor = os.path.dirname(target)
        while not self.exists(ancestor):
            ancestor = os.path.dirname(ancestor)
        if not os.path.isdir("/new" + ancestor):
            raise MountFault(f"{ancestor} is not a directory")
        in_drive = any(ancestor == drive or ancestor.startswith(drive + "/") for drive in self.writable)
        if not in_drive and os.stat("/new" + ancestor).st_dev not in self.own:
            self.shadow(ancestor)
        os.makedirs(inside if directory else os.path.dirname(inside), exist_ok=True)
        if not directory:
            os.close(os.open(inside, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        return inside

    def shadow(self, path: str) -> None:
        """Put an in-memory directory with the same entries in place of a directory of the machine."""
        self.staged += 1
        stage = f"/stage/{self.staged}"
        os.mkdir(stage)
        self.replace(f"/new{path}", stage)
        kernel.mount(stage, f"/new{path}", None, kernel.MS_MOVE)

    def replace(self, original: str, empty: str) -> None:
        """Mount an in-memory directory at `empty` that holds the entries of `original`."""
        found = os.stat(original)
        kernel.mount("tmpfs", empty, "tmpfs", kernel.MS_NOSUID, "mode=0755")
        self.own.add(os.stat(empty).st_dev)
        with os.scandir(original) as entries:
            for entry in entries:
                _mirror(entry, os.path.join(empty, entry.name))
        os.chmod(empty, stat.S_IMODE(found.st_mode))
        try:
            os.chown(empty, found.st_uid, found.st_gid)
        except OSError:
            # In a user namespace an owner that is not mapped cannot be given; the entries keep theirs.
            return


def _mirror(entry: os.DirEntry[str], target: str) -> None:
    try:
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir(follow_symlinks=False):
            os.mkdir(target)
            kernel.mount(entry.path, target, None, kernel.MS_BIND | kernel.MS_REC)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            kernel.mount(entry.path, target, None, kernel.MS_BIND)
    except FileNotFoundError:
        # The entry vanished between the listing and the mount.
        return


def enter(binds: list[Bind], files: list[File], staging: str) -> None:
    """Move this process into a namespace of its own with these mounts. `staging` is an empty directory."""
    binds = [Bind(b.name, os.path.realpath(b.source), _resolved(b.target), b.read_only) for b in binds]
    files = [File(_resolved(file.target), file.value) for file in files]
    targets = sorted([bind.target for bind in binds] + [file.target for file in files])
    for one, other in itertools.pairwise(targets):
        if one == other:
            raise MountFault(f"two mounts at {one}")
    new_root = any(not os.path.lexists("/" + target.split("/")[1]) for target in targets)
    try:
        _private_root(staging)
        view = View()
        if new_root:
            view.replace("/old", "/new")
        else:
            kernel.mount("/old", "/new", None, kernel.MS_BIND | kernel.MS_REC)
    except OSError as fault:
        raise MountFault(f"this machine does not allow mounts: {fault.strerror}") from fault
    items: list[Bind | File] = [*binds, *files]
    for item in sorted(items, key=lambda item: item.target.count("/")):
        try:
            _mount(view, item)
        except OSError as fault:
            what = f"drive {item.name}" if isinstance(item, Bind) else "config"
            raise MountFault(f"cannot mount {what} at {item.target}: {fault.strerror}") from fault
    os.chdir("/new")
    kernel.pivot_root(".", ".")
    kernel.detach(".")
    os.chdir("/")


def _resolved(target: str) -> str:
    path = os.path.realpath(target)
    if path == "/" or any(path == refused or path.startswith(refused + "/") for refused in REFUSED):
        raise MountFault(f"cannot mount at {target}: the path belongs to the system")
    return path


def _private_root(staging: str) -> None:
    """Make an in-memory root with the machine's at /old, invisible to everyone else."""
    if os.geteuid() == 0:
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        _user_namespace()
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", staging, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755")
    for name in ("old", "new", "stage", "files"):
        os.mkdir(os.path.join(staging, name))
    kernel.pivot_root(staging, os.path.join(staging, "old"))
    os.chdir("/")


def _user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _mount(view: View, item: Bind | File) -> None:
    if isinstance(item, File):
        view.staged += 1
        source = f"/files/{view.staged}"
        with open(source, "w", encoding="utf-8", newline="") as file:
            file.write(item.value)
        os.chmod(source, 0o755 if item.value.startswith("#!") else 0o644)
        kernel.mount(source, view.point(item.target, directory=False), None, kernel.MS_BIND)
        return
    inside = view.point(item.target, directory=True)
    kernel.mount("/old" + item.source, inside, None, kernel.MS_BIND | kernel.MS_REC)
    if item.read_only:
        kept = os.statvfs(inside).f_flag & (kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        flags = kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | kept
        kernel.mount("none", inside, None, flags)
    elif not os.access(inside, os.W_OK):
        raise MountFault(f"cannot mount drive {item.name} at {item.target} for writing: its directory is read-only")
    else:
        view.writable.append(item.target)
