"""Clusters, organisations and workspaces; with `tokens` and `library`, everything a workspace owns besides runs."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from astraeus.ledger.core import Tx
from astraeus.ledger.library import (
    DriveRow,
    TemplateRow,
    delete_drive,
    delete_secret,
    delete_template,
    get_drive,
    get_template,
    list_drives,
    list_secrets,
    list_templates,
    open_secrets,
    put_drive,
    put_secret,
    put_template,
)
from astraeus.ledger.tables import cluster, organisation, workspace
from astraeus.ledger.tokens import Caller, TokenView, authenticate, create_token, note_use, revoke_token, tokens
from astraeus.ledger.upsert import insert_or_keep
from astraeus.model.errors import Invalid, NotFound
from astraeus.model.names import canonical, name_fault

__all__ = [
    "Caller",
    "Cluster",
    "DriveRow",
    "TemplateRow",
    "TokenView",
    "Workspace",
    "authenticate",
    "clusters",
    "create_token",
    "delete_drive",
    "delete_secret",
    "delete_template",
    "ensure_cluster",
    "ensure_workspace",
    "find_workspace",
    "get_drive",
    "get_template",
    "get_workspace",
    "list_drives",
    "list_secrets",
    "list_templates",
    "note_use",
    "open_secrets",
    "put_drive",
    "put_secret",
    "put_template",
    "revoke_token",
    "tokens",
]


@dataclass(frozen=True)
class Cluster:
    """Machines under one scheduler; `executor` is how its workers are started, `factors` override the estimate's."""

    name: str
    executor: str
    factors: Mapping[str, float]


@dataclass(frozen=True)
class Workspace:
    """Who owns runs, templates, drives, secrets and tokens."""

    id: str
    organisation: str
    name: str
    default_cluster: str

    @property
    def path(self) -> str:
        """`org/name`."""
        return f"{self.organisation}/{self.name}"


async def ensure_cluster(tx: Tx, name: str) -> None:
    """Make a cluster unless it exists. Raises Invalid for a bad name."""
    await tx.conn.execute(insert_or_keep(tx, cluster, {"name": _named("cluster", name)}))


async def clusters(tx: Tx) -> list[Cluster]:
    """All clusters, by name."""
    query = select(cluster.c.name, cluster.c.executor, cluster.c.factors).order_by(cluster.c.name)
    return [Cluster(**row) for row in (await tx.conn.execute(query)).mappings()]


async def ensure_workspace(tx: Tx, organisation_name: str, name: str, cluster_name: str) -> Workspace:
    """The workspace, made if it does not exist; its default cluster must exist. Raises Invalid, NotFound."""
    owner, name = _named("organisation", organisation_name), _named("workspace", name)
    await tx.conn.execute(insert_or_keep(tx, organisation, {"name": owner}))
    home = canonical(cluster_name)
    if (await tx.conn.execute(select(cluster.c.name).where(cluster.c.name == home))).one_or_none() is None:
        raise NotFound(f"There is no cluster {home}")
    values = {"id": uuid.uuid4().hex, "organisation": owner, "name": name, "default_cluster": home}
    await tx.conn.execute(insert_or_keep(tx, workspace, values))
    found = await find_workspace(tx, owner, name)
    if found is None:
        raise NotFound(f"There is no workspace {owner}/{name}")
    return found


async def find_workspace(tx: Tx, organisation_name: str, name: str) -> Workspace | None:
    """The workspace of that path."""
    query = select(workspace).where(
        workspace.c.organisation == canonical(organisation_name), workspace.c.name == canonical(name)
    )
    return _workspace((await tx.conn.execute(query)).mappings().one_or_none())


async def get_workspace(tx: Tx, id: str) -> Workspace:
    """The workspace of that id. Raises NotFound."""
    found = _workspace((await tx.conn.execute(select(workspace).where(workspace.c.id == id))).mappings().one_or_none())
    if found is None:
        raise NotFound(f"There is no workspace with the id {id}")
    return found


def _workspace(row: Mapping[Any, Any] | None) -> Workspace | None:
    return Workspace(row["id"], row["organisation"], row["name"], row["default_cluster"]) if row else None


def _named(what: str, name: str) -> str:
    name = canonical(name)
    if fault := name_fault(name):
        raise Invalid(f"The {what} name {name!r} {fault}")
    return name
