"""What is told: to workflows, to people, to agents, and to readers that keep something in memory."""

from sqlalchemy import Column, Double, Index, Integer, String, Table, Text, text
from sqlalchemy.types import JSON

from astraeus.ledger.schema.base import SERIAL, metadata

outbox = Table(
    "outbox",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("cluster", String(63), nullable=False),
    Column("run_uid", String(32), nullable=False),
    Column("workflow_id", String(255), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("body", JSON, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("sent_at", Double),
    Index(
        "ix_outbox_unsent",
        "cluster",
        "id",
        sqlite_where=text("sent_at IS NULL"),
        postgresql_where=text("sent_at IS NULL"),
    ),
)

event = Table(
    "event",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("workspace", String(32), nullable=False),
    Column("run_uid", String(32)),
    Column("run_name", String(63)),
    Column("attempt", Integer),
    Column("at", Double, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("actor", String(128), nullable=False),
    Column("message", Text, nullable=False),
    Column("worker", String(63)),
    Index("ix_event_workspace", "workspace", "id"),
    Index("ix_event_run", "run_uid", "id"),
)

log_request = Table(
    "log_request",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(63), nullable=False),
    Column("machine", String(253), nullable=False),
    Column("body", JSON, nullable=False),
    Column("expires_at", Double, nullable=False),
    Index("ix_log_request_machine", "cluster", "machine"),
)

change = Table(
    "change",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=True),
    Column("kind", String(16), nullable=False),
    Column("key", String(320), nullable=False),
    Column("at", Double, nullable=False),
    sqlite_autoincrement=True,
)
