"""Who owns what: organisations, workspaces and all that is theirs besides runs."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    String,
    Table,
    UniqueConstraint,
)
from sqlalchemy.types import JSON

from astraeus.ledger.schema.base import metadata

organisation = Table("organisation", metadata, Column("name", String(63), primary_key=True))

workspace = Table(
    "workspace",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("organisation", String(63), ForeignKey("organisation.name"), nullable=False),
    Column("name", String(63), nullable=False),
    Column("default_cluster", String(63), ForeignKey("cluster.name"), nullable=False),
    UniqueConstraint("organisation", "name"),
)

allotment = Table(
    "allotment",
    metadata,
    Column("workspace", String(32), ForeignKey("workspace.id"), primary_key=True),
    Column("cluster", String(63), ForeignKey("cluster.name"), primary_key=True),
    Column("gpu_quota", Integer),
    Column("share", Double),
    Column("used", Double, nullable=False, server_default="0"),
    Column("used_at", Double, nullable=False, server_default="0"),
    CheckConstraint("gpu_quota >= 0", name="gpu_quota"),
    CheckConstraint("share > 0", name="share"),
)

token = Table(
    "token",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(63), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("role", String(16), nullable=False),
    Column("workspace", String(32), ForeignKey("workspace.id")),
    Column("cluster", String(63), ForeignKey("cluster.name")),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("last_used_at", Double),
    CheckConstraint("kind IN ('user', 'machine')", name="kind"),
    CheckConstraint("role IN ('viewer', 'editor', 'admin', 'machine')", name="role"),
)

template = Table(
    "template",
    metadata,
    Column("workspace", String(32), ForeignKey("workspace.id"), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("body", JSON, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("updated_by", String(63), nullable=False),
)

drive = Table(
    "drive",
    metadata,
    Column("workspace", String(32), ForeignKey("workspace.id"), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("path", String(4096)),
    Column("created_at", Double, nullable=False),
    CheckConstraint("kind IN ('machine', 'shared')", name="kind"),
)

secret = Table(
    "secret",
    metadata,
    Column("workspace", String(32), ForeignKey("workspace.id"), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("updated_by", String(63), nullable=False),
)
