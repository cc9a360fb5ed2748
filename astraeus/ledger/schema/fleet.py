"""Clusters, their machines and the ports of those."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Integer,
    String,
    Table,
    Text,
    false,
)
from sqlalchemy.types import JSON

from astraeus.ledger.schema.base import GPUS_MAX, metadata

cluster = Table(
    "cluster",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("executor", String(32), nullable=False, server_default="agent"),
    Column("factors", JSON, nullable=False, server_default="{}"),
    Column("pass_term", BigInteger, nullable=False, server_default="0"),
    Column("watch_term", BigInteger, nullable=False, server_default="0"),
    Column("watch_resumed_at", Double, nullable=False, server_default="0"),
    Column("watched_at", Double, nullable=False, server_default="0"),
    Column("held_since", Double),
    Column("alarmed_at", Double),
    Column("served_at", Double),
    Column("half_life_seconds", Double, nullable=False, server_default="604800"),
)

machine = Table(
    "machine",
    metadata,
    Column("cluster", String(63), ForeignKey("cluster.name"), primary_key=True),
    Column("name", String(253), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("state_since", Double, nullable=False),
    Column("cordoned", Boolean, nullable=False, server_default=false()),
    Column("drain_reason", Text),
    Column("drained_by", String(63)),
    Column("boot_id", String(64), nullable=False),
    Column("address", String(253), nullable=False),
    Column("facts", JSON, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("used_gpus", BigInteger, nullable=False, server_default="0"),
    Column("cpu_cores", Double, nullable=False),
    Column("used_cpu", Double, nullable=False, server_default="0"),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("used_memory", BigInteger, nullable=False, server_default="0"),
    Column("session", String(64), nullable=False),
    Column("heard_at", Double, nullable=False),
    Column("heard_since", Double),
    CheckConstraint("state IN ('Ready', 'Down', 'Returning')", name="state"),
    CheckConstraint("used_gpus >= 0", name="used_gpus"),
    CheckConstraint(f"gpus BETWEEN 0 AND {GPUS_MAX}", name="gpus"),
)

nic = Table(
    "nic",
    metadata,
    Column("cluster", String(63), primary_key=True),
    Column("machine", String(253), primary_key=True),
    Column("device", String(64), primary_key=True),
    Column("port", Integer, primary_key=True),
    Column("rail", Integer, nullable=False),
    Column("gbps", Double, nullable=False),
    Column("link", String(16), nullable=False),
    Column("up", Boolean, nullable=False),
    Column("node_guid", String(32)),
)
