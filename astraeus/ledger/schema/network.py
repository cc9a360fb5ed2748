"""What is known of the network: fabrics, places, findings, scans, measured bandwidths."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.types import JSON

from astraeus.ledger.schema.base import SERIAL, metadata

topology_fabric = Table(
    "topology_fabric",
    metadata,
    Column("cluster", String(63), ForeignKey("cluster.name"), primary_key=True),
    Column("name", String(253), primary_key=True),
    Column("identity", JSON, nullable=False),
    Column("summary", JSON, nullable=False),
    Column("links", LargeBinary, nullable=False),
    Column("scanned_at", Double, nullable=False),
    Column("counters", LargeBinary),
)

topology_place = Table(
    "topology_place",
    metadata,
    Column("cluster", String(63), ForeignKey("cluster.name"), primary_key=True),
    Column("machine", String(253), primary_key=True),
    Column("labels", JSON, nullable=False),
    Column("ports", JSON, nullable=False),
    Column("source", String(16), nullable=False),
    Column("at", Double, nullable=False),
    CheckConstraint("source IN ('scan', 'file')", name="source"),
)

topology_finding = Table(
    "topology_finding",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("cluster", String(63), ForeignKey("cluster.name"), nullable=False),
    Column("key", Text, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("fabric", String(253), nullable=False),
    Column("place", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("cost", Text, nullable=False),
    Column("advice", Text, nullable=False),
    Column("machines", JSON, nullable=False),
    Column("detail", JSON, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("closed_at", Double),
    Index(
        "uq_topology_finding_open",
        "cluster",
        "key",
        unique=True,
        sqlite_where=text("closed_at IS NULL"),
        postgresql_where=text("closed_at IS NULL"),
    ),
)

topology_scan = Table(
    "topology_scan",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(63), ForeignKey("cluster.name"), nullable=False),
    Column("at", Double, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("state", String(16), nullable=False),
    Column("why", Text),
    Column("summary", JSON, nullable=False),
    Column("body", LargeBinary),
    CheckConstraint("state IN ('applied', 'held', 'discarded')", name="state"),
    Index("ix_topology_scan_cluster", "cluster", "at"),
)

topology_measured = Table(
    "topology_measured",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("cluster", String(63), ForeignKey("cluster.name"), nullable=False),
    Column("rung", String(16), nullable=False),
    Column("gpu_model", String(128), nullable=False),
    Column("value", Double, nullable=False),
    Column("busbw_gbps", Double, nullable=False),
    Column("rails", Integer),
    Column("gbps", Double),
    Column("run_name", String(63)),
    Column("actor", String(128), nullable=False),
    Column("at", Double, nullable=False),
    Index("ix_topology_measured_key", "cluster", "rung", "gpu_model"),
)
