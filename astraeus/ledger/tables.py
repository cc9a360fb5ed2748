"""The ledger's tables and the rules that the database itself enforces.

Times are seconds since the epoch in UTC, from the database's clock, as double precision. GPU sets are bitmasks
in 64-bit integers: bit i is GPU i, so a machine has at most 63.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.types import JSON

GPUS_MAX = 63
SERIAL = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

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

run = Table(
    "run",
    metadata,
    Column("uid", String(32), primary_key=True),
    Column("workspace", String(32), ForeignKey("workspace.id"), nullable=False),
    Column("name", String(63), nullable=False),
    Column("cluster", String(63), ForeignKey("cluster.name"), nullable=False),
    Column("spec", JSON, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("labels", JSON, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("idempotency_key", String(255)),
    Column("submitted_by", String(63), nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("state", String(16), nullable=False),
    Column("final", Boolean, nullable=False, server_default=false()),
    Column("reason", Text, nullable=False),
    Column("network", JSON),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("held", Boolean, nullable=False, server_default=false()),
    Column("budget", Integer),
    Column("budget_left", Integer),
    Column("next_earned_at", Double),
    Column("started_at", Double),
    Column("finished_at", Double),
    Column("delete_asked_at", Double),
    Column("hidden_at", Double),
    Column("workflow_started", Boolean, nullable=False, server_default=false()),
    CheckConstraint(
        "state IN ('Pending', 'Starting', 'Running', 'Stopping', 'Succeeded', 'Failed', 'Cancelled')", name="state"
    ),
    Index(
        "uq_run_live_name",
        "workspace",
        "name",
        unique=True,
        sqlite_where=text("NOT final AND delete_asked_at IS NULL"),
        postgresql_where=text("NOT final AND delete_asked_at IS NULL"),
    ),
    Index(
        "uq_run_idempotency_key",
        "workspace",
        "idempotency_key",
        unique=True,
        sqlite_where=text("idempotency_key IS NOT NULL"),
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    Index("ix_run_order", "workspace", "submitted_at", "uid"),
    Index(
        "ix_run_without_workflow",
        "submitted_at",
        sqlite_where=text("NOT workflow_started"),
        postgresql_where=text("NOT workflow_started"),
    ),
)

claim = Table(
    "claim",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("run_uid", String(32), ForeignKey("run.uid"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("cluster", String(63), ForeignKey("cluster.name"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("entered_at", Double, nullable=False),
    Column("patience_until", Double, nullable=False),
    Column("avoid", JSON, nullable=False, server_default="[]"),
    Column("headline", Text),
    Column("waiting_reason", Text),
    Column("size", Integer),
    Column("gpus_per_worker", Integer),
    Column("rung", Integer),
    Column("network", JSON),
    Column("master_host", String(253)),
    Column("master_port", Integer),
    Column("granted_at", Double),
    Column("first_arrived_at", Double),
    Column("arrived", Integer, nullable=False, server_default="0"),
    Column("ended", Integer, nullable=False, server_default="0"),
    Column("all_arrived_at", Double),
    Column("gates_opened_at", Double),
    Column("intent", String(32)),
    Column("intent_at", Double),
    Column("intent_by", String(128)),
    Column("intent_why", Text),
    Column("failure", String(32)),
    Column("failure_at", Double),
    Column("failure_rank", Integer),
    Column("failure_detail", Text),
    Column("succeeded_at", Double),
    Column("released_at", Double),
    Column("cause", String(32)),
    Column("detail", Text),
    Column("charged", Boolean, nullable=False, server_default=false()),
    CheckConstraint("state IN ('Waiting', 'Granted', 'Released')", name="state"),
    UniqueConstraint("run_uid", "attempt"),
    Index(
        "uq_claim_live",
        "run_uid",
        unique=True,
        sqlite_where=text("state <> 'Released'"),
        postgresql_where=text("state <> 'Released'"),
    ),
    Index(
        "uq_claim_master",
        "master_host",
        "master_port",
        unique=True,
        sqlite_where=text("state = 'Granted'"),
        postgresql_where=text("state = 'Granted'"),
    ),
    Index(
        "ix_claim_open",
        "cluster",
        sqlite_where=text("state <> 'Released'"),
        postgresql_where=text("state <> 'Released'"),
    ),
)

allocation = Table(
    "allocation",
    metadata,
    Column("claim", SERIAL, ForeignKey("claim.id"), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("cluster", String(63), nullable=False),
    Column("machine", String(253), nullable=False),
    Column("gpu_mask", BigInteger, nullable=False),
    Column("cpu_cores", Double, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("hcas", JSON, nullable=False),
    Column("live", Boolean, nullable=False),
    Index(
        "ix_allocation_live",
        "cluster",
        "machine",
        sqlite_where=text("live"),
        postgresql_where=text("live"),
    ),
)

reservation = Table(
    "reservation",
    metadata,
    Column("claim", SERIAL, ForeignKey("claim.id"), primary_key=True),
    Column("cluster", String(63), primary_key=True),
    Column("machine", String(253), primary_key=True),
    Column("gpu_mask", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
)

worker = Table(
    "worker",
    metadata,
    Column("run_uid", String(32), ForeignKey("run.uid"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("cluster", String(63), nullable=False),
    Column("machine", String(253), nullable=False),
    Column("desired", String(8), nullable=False),
    Column("grace_seconds", Double, nullable=False),
    Column("observed", String(16), nullable=False, server_default="none"),
    Column("lost", Boolean, nullable=False, server_default=false()),
    Column("gone", Boolean, nullable=False, server_default=false()),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("oom", Boolean, nullable=False, server_default=false()),
    Column("error", Text),
    Column("arrived_at", Double),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("gate_opened_at", Double),
    CheckConstraint("desired IN ('hold', 'run', 'stop')", name="desired"),
    CheckConstraint("observed IN ('none', 'preparing', 'arrived', 'running', 'exited', 'failed')", name="observed"),
    Index(
        "ix_worker_on_machine",
        "cluster",
        "machine",
        sqlite_where=text("NOT gone"),
        postgresql_where=text("NOT gone"),
    ),
)

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

topology_fabric = Table(
    "topology_fabric",
    metadata,
    Column("cluster", String(63), ForeignKey("cluster.name"), primary_key=True),
    Column("name", String(253), primary_key=True),
    Column("identity", JSON, nullable=False),
    Column("summary", JSON, nullable=False),
    Column("links", LargeBinary, nullable=False),
    Column("scanned_at", Double, nullable=False),
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
