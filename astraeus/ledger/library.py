"""What a workspace keeps for its runs: templates, drives and sealed secrets.

What changes one is announced under its kind and the workspace's id: every reader of a kind shows all of it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Table, delete, select

from astraeus.ledger.cipher import Cipher
from astraeus.ledger.core import Tx
from astraeus.ledger.tables import drive, secret, template
from astraeus.ledger.upsert import insert_or_replace

DriveKind = Literal["machine", "shared"]


@dataclass(frozen=True)
class TemplateRow:
    """A saved submission."""

    name: str
    body: dict[str, Any]
    updated_at: float
    updated_by: str


@dataclass(frozen=True)
class DriveRow:
    """A drive: a directory on each machine, or one for all machines of a cluster. Without `path` the agent keeps it."""

    name: str
    kind: DriveKind
    path: str | None
    created_at: float


TEMPLATE = (template.c.name, template.c.body, template.c.updated_at, template.c.updated_by)
DRIVE = (drive.c.name, drive.c.kind, drive.c.path, drive.c.created_at)


async def put_template(tx: Tx, workspace_id: str, name: str, body: dict[str, Any], actor: str) -> None:
    """Save a submission under a name, in place of an older one."""
    values = {"workspace": workspace_id, "name": name, "body": body, "updated_at": tx.now, "updated_by": actor}
    await _put(tx, template, values, ("body", "updated_at", "updated_by"))


async def get_template(tx: Tx, workspace_id: str, name: str) -> TemplateRow | None:
    """One template."""
    query = select(*TEMPLATE).where(template.c.workspace == workspace_id, template.c.name == name)
    row = (await tx.conn.execute(query)).mappings().one_or_none()
    return TemplateRow(**row) if row else None


async def list_templates(tx: Tx, workspace_id: str) -> list[TemplateRow]:
    """All templates, by name."""
    query = select(*TEMPLATE).where(template.c.workspace == workspace_id).order_by(template.c.name)
    return [TemplateRow(**row) for row in (await tx.conn.execute(query)).mappings()]


async def delete_template(tx: Tx, workspace_id: str, name: str) -> bool:
    """Forget a template; whether there was one."""
    return await _delete(tx, template, workspace_id, name)


async def put_drive(tx: Tx, workspace_id: str, name: str, kind: DriveKind, path: str | None) -> None:
    """Make a drive, or change the kind and path of one."""
    values = {"workspace": workspace_id, "name": name, "kind": kind, "path": path, "created_at": tx.now}
    await _put(tx, drive, values, ("kind", "path"))


async def get_drive(tx: Tx, workspace_id: str, name: str) -> DriveRow | None:
    """One drive."""
    query = select(*DRIVE).where(drive.c.workspace == workspace_id, drive.c.name == name)
    row = (await tx.conn.execute(query)).mappings().one_or_none()
    return DriveRow(**row) if row else None


async def list_drives(tx: Tx, workspace_id: str) -> list[DriveRow]:
    """All drives, by name."""
    query = select(*DRIVE).where(drive.c.workspace == workspace_id).order_by(drive.c.name)
    return [DriveRow(**row) for row in (await tx.conn.execute(query)).mappings()]


async def delete_drive(tx: Tx, workspace_id: str, name: str) -> bool:
    """Forget a drive; whether there was one. Its files stay."""
    return await _delete(tx, drive, workspace_id, name)


async def put_secret(tx: Tx, cipher: Cipher, workspace_id: str, name: str, value: str, actor: str) -> None:
    """Seal a value under a name, in place of an older one."""
    sealed = cipher.seal(value.encode(), _place(workspace_id, name))
    values = {"workspace": workspace_id, "name": name, "sealed": sealed, "updated_at": tx.now, "updated_by": actor}
    await _put(tx, secret, values, ("sealed", "updated_at", "updated_by"))


async def list_secrets(tx: Tx, workspace_id: str) -> list[str]:
    """The names of all secrets, sorted."""
    query = select(secret.c.name).where(secret.c.workspace == workspace_id).order_by(secret.c.name)
    return list((await tx.conn.execute(query)).scalars())


async def delete_secret(tx: Tx, workspace_id: str, name: str) -> bool:
    """Forget a secret; whether there was one."""
    return await _delete(tx, secret, workspace_id, name)


async def open_secrets(tx: Tx, cipher: Cipher, workspace_id: str, names: Collection[str]) -> dict[str, str]:
    """The values of those of `names` that exist. Raises `CannotOpen` when the key of one is not known any more."""
    query = select(secret.c.name, secret.c.sealed).where(secret.c.workspace == workspace_id, secret.c.name.in_(names))
    return {
        name: cipher.open(sealed, _place(workspace_id, name)).decode()
        for name, sealed in (await tx.conn.execute(query)).all()
    }


def _place(workspace_id: str, name: str) -> bytes:
    """Binds sealed bytes to their row, so that one cannot be copied over another."""
    return f"secret/{workspace_id}/{name}".encode()


async def _put(tx: Tx, table: Table, values: dict[str, Any], replaced: tuple[str, ...]) -> None:
    await tx.conn.execute(insert_or_replace(tx, table, values, replaced))
    tx.announce(table.name, values["workspace"])


async def _delete(tx: Tx, table: Table, workspace_id: str, name: str) -> bool:
    statement = delete(table).where(table.c.workspace == workspace_id, table.c.name == name)
    found = bool((await tx.conn.execute(statement)).rowcount)
    if found:
        tx.announce(table.name, workspace_id)
    return found
