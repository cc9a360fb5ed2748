"""The embedded stack's directory: its files, keys, tokens and first rows, kept so that a restart goes on."""

import fcntl
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from astraeus.ledger import library, migrate, tenancy, tokens
from astraeus.ledger.cipher import Cipher
from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.tenancy import Workspace
from astraeus.model.errors import Conflict

ORGANISATION, WORKSPACE = "acme", "vision"
DRIVE = "checkpoints"


class Place:
    """The files of one embedded stack; `lock` it before anything else."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.keys = directory / "keys"
        self.user_token = directory / "token"
        self.agent_token = directory / "agent-token"
        self.agent = directory / "agent"
        self.logs = directory / "logs"
        self.temporal_db = directory / "temporal.db"
        self.dev_json = directory / "dev.json"
        self.ports = directory / "ports.json"
        self._lock: IO[str] | None = None

    @property
    def ledger_url(self) -> str:
        """The ledger to use: ASTRAEUS_LEDGER_URL, or a SQLite file here."""
        return os.environ.get("ASTRAEUS_LEDGER_URL") or f"sqlite+aiosqlite:///{self.directory / 'ledger.db'}"

    def lock(self) -> None:
        """Take the directory for this process. Raises `Conflict` when another has it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        self.logs.mkdir(exist_ok=True)
        self.agent.mkdir(exist_ok=True)
        # The file stays open for as long as the lock is to be held.
        self._lock = (self.directory / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            raise Conflict(
                f"astra dev already runs on {self.directory} (pid {owner}); stop it, or give another --dir"
            ) from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def port(self, name: str, asked: int | None, default: int) -> int:
        """The port to listen on; 0 takes the one of the last start if it is free, else any. Raises `Conflict`."""
        last = self._remembered().get(name)
        wanted = default if asked is None else asked
        if wanted == 0:
            port = last if isinstance(last, int) and _is_free(last) else _any_free()
        elif _is_free(wanted):
            port = wanted
        else:
            flag = "--temporal-port" if name.startswith("temporal") else "--port"
            raise Conflict(f"port {wanted} is taken; give another with {flag}, or {flag} 0 for any free one")
        write_private(self.ports, json.dumps({**self._remembered(), name: port}))
        return port

    def _remembered(self) -> dict[str, Any]:
        try:
            found = json.loads(read(self.ports) or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    async def furnish(self, cluster: str) -> None:
        """Everything the parts need to exist: keys, schema, cluster, workspace, drive, tokens. Idempotent."""
        if not self.keys.exists():
            write_private(self.keys, Cipher.generate_text())
        ledger = Ledger(self.ledger_url)
        try:
            await migrate.upgrade(ledger)
            async with ledger.transaction() as tx:
                await tenancy.ensure_cluster(tx, cluster)
                space = await tenancy.ensure_workspace(tx, ORGANISATION, WORKSPACE, cluster)
                await self._drive(tx, space)
                await self._token(tx, self.user_token, name="dev", kind="user", role="admin", workspace_id=space.id)
                await self._token(
                    tx, self.agent_token, name="dev-agent", kind="machine", role="machine", cluster=cluster
                )
        finally:
            await ledger.close()

    async def _drive(self, tx: Tx, space: Workspace) -> None:
        if await library.get_drive(tx, space.id, DRIVE) is None:
            await library.put_drive(tx, space.id, DRIVE, kind="shared", path=None)

    async def _token(self, tx: Tx, file: Path, **of: Any) -> None:
        if (kept := read(file)) and await tokens.authenticate(tx, kept) is not None:
            return
        _, secret = await tokens.create_token(tx, **of)
        write_private(file, secret)

    def announce(self, facts: Mapping[str, Any]) -> None:
        """Write dev.json, whole or not at all."""
        write_private(self.dev_json, json.dumps(facts, indent=2) + "\n")

    def withdraw(self) -> None:
        """Remove dev.json: the stack takes no more runs."""
        self.dev_json.unlink(missing_ok=True)


def read(path: Path) -> str | None:
    """A file's text without outer blanks, None when it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def write_private(path: Path, text: str) -> None:
    """Replace a file's text at once, readable by its owner only."""
    temporary = path.with_name(path.name + ".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _any_free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
