"""The first schema."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0001"
down_revision = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade(op: Operations) -> None:
    """Create every table."""
    _tenancy(op)
    _machines(op)
    _runs(op)
    _claims(op)
    _records(op)


def _index(op: Operations, name: str, table: str, columns: list[str], where: str, unique: bool) -> None:
    """A partial index."""
    op.create_index(name, table, columns, unique=unique, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _tenancy(op: Operations) -> None:
    op.create_table(
        "cluster",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("executor", sa.String(length=32), server_default="agent", nullable=False),
        sa.Column("factors", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("pass_term", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("watch_term", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("watch_resumed_at", sa.Double(), server_default="0", nullable=False),
        sa.Column("watched_at", sa.Double(), server_default="0", nullable=False),
        sa.Column("held_since", sa.Double(), nullable=True),
        sa.Column("alarmed_at", sa.Double(), nullable=True),
        sa.Column("served_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_cluster")),
    )
    op.create_table(
        "organisation",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_organisation")),
    )
    op.create_table(
        "workspace",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("organisation", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("default_cluster", sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(["default_cluster"], ["cluster.name"], name=op.f("fk_workspace_default_cluster")),
        sa.ForeignKeyConstraint(["organisation"], ["organisation.name"], name=op.f("fk_workspace_organisation")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspace")),
        sa.UniqueConstraint("organisation", "name", name=op.f("uq_workspace_organisation_name")),
    )
    op.create_table(
        "token",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("workspace", sa.String(length=32), nullable=True),
        sa.Column("cluster", sa.String(length=63), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.CheckConstraint("kind IN ('user', 'machine')", name=op.f("ck_token_kind")),
        sa.CheckConstraint("role IN ('viewer', 'editor', 'admin', 'machine')", name=op.f("ck_token_role")),
        sa.ForeignKeyConstraint(["cluster"], ["cluster.name"], name=op.f("fk_token_cluster")),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.id"], name=op.f("fk_token_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
    )
    op.create_table(
        "template",
        sa.Column("workspace", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.id"], name=op.f("fk_template_workspace")),
        sa.PrimaryKeyConstraint("workspace", "name", name=op.f("pk_template")),
    )
    op.create_table(
        "drive",
        sa.Column("workspace", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("path", sa.String(length=4096), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("kind IN ('machine', 'shared')", name=op.f("ck_drive_kind")),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.id"], name=op.f("fk_drive_workspace")),
        sa.PrimaryKeyConstraint("workspace", "name", name=op.f("pk_drive")),
    )
    op.create_table(
        "secret",
        sa.Column("workspace", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("updated_by", sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.id"], name=op.f("fk_secret_workspace")),
        sa.PrimaryKeyConstraint("workspace", "name", name=op.f("pk_secret")),
    )


def _machines(op: Operations) -> None:
    op.create_table(
        "machine",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("state_since", sa.Double(), nullable=False),
        sa.Column("cordoned", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("drain_reason", sa.Text(), nullable=True),
        sa.Column("drained_by", sa.String(length=63), nullable=True),
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=253), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("used_gpus", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cpu_cores", sa.Double(), nullable=False),
        sa.Column("used_cpu", sa.Double(), server_default="0", nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("used_memory", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("heard_at", sa.Double(), nullable=False),
        sa.CheckConstraint("state IN ('Ready', 'Down', 'Returning')", name=op.f("ck_machine_state")),
        sa.CheckConstraint("gpus BETWEEN 0 AND 63", name=op.f("ck_machine_gpus")),
        sa.CheckConstraint("used_gpus >= 0", name=op.f("ck_machine_used_gpus")),
        sa.ForeignKeyConstraint(["cluster"], ["cluster.name"], name=op.f("fk_machine_cluster")),
        sa.PrimaryKeyConstraint("cluster", "name", name=op.f("pk_machine")),
    )
    op.create_table(
        "nic",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("machine", sa.String(length=253), nullable=False),
        sa.Column("device", sa.String(length=64), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("rail", sa.Integer(), nullable=False),
        sa.Column("gbps", sa.Double(), nullable=False),
        sa.Column("link", sa.String(length=16), nullable=False),
        sa.Column("up", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "machine", "device", "port", name=op.f("pk_nic")),
    )


def _runs(op: Operations) -> None:
    op.create_table(
        "run",
        sa.Column("uid", sa.String(length=32), nullable=False),
        sa.Column("workspace", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("submitted_by", sa.String(length=63), nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("final", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("network", sa.JSON(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("held", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("budget", sa.Integer(), nullable=True),
        sa.Column("budget_left", sa.Integer(), nullable=True),
        sa.Column("next_earned_at", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("delete_asked_at", sa.Double(), nullable=True),
        sa.Column("hidden_at", sa.Double(), nullable=True),
        sa.Column("workflow_started", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.CheckConstraint(
            "state IN ('Pending', 'Starting', 'Running', 'Stopping', 'Succeeded', 'Failed', 'Cancelled')",
            name=op.f("ck_run_state"),
        ),
        sa.ForeignKeyConstraint(["cluster"], ["cluster.name"], name=op.f("fk_run_cluster")),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.id"], name=op.f("fk_run_workspace")),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_run")),
    )
    op.create_index("ix_run_order", "run", ["workspace", "submitted_at", "uid"], unique=False)
    _index(op, "ix_run_without_workflow", "run", ["submitted_at"], "NOT workflow_started", unique=False)
    _index(
        op,
        "uq_run_idempotency_key",
        "run",
        ["workspace", "idempotency_key"],
        "idempotency_key IS NOT NULL",
        unique=True,
    )
    _index(op, "uq_run_live_name", "run", ["workspace", "name"], "NOT final AND delete_asked_at IS NULL", unique=True)


def _claims(op: Operations) -> None:
    op.create_table(
        "claim",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("run_uid", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("entered_at", sa.Double(), nullable=False),
        sa.Column("patience_until", sa.Double(), nullable=False),
        sa.Column("avoid", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("headline", sa.Text(), nullable=True),
        sa.Column("waiting_reason", sa.Text(), nullable=True),
        sa.Column("size", sa.Integer(), nullable=True),
        sa.Column("gpus_per_worker", sa.Integer(), nullable=True),
        sa.Column("rung", sa.Integer(), nullable=True),
        sa.Column("network", sa.JSON(), nullable=True),
        sa.Column("master_host", sa.String(length=253), nullable=True),
        sa.Column("master_port", sa.Integer(), nullable=True),
        sa.Column("granted_at", sa.Double(), nullable=True),
        sa.Column("first_arrived_at", sa.Double(), nullable=True),
        sa.Column("arrived", sa.Integer(), server_default="0", nullable=False),
        sa.Column("ended", sa.Integer(), server_default="0", nullable=False),
        sa.Column("all_arrived_at", sa.Double(), nullable=True),
        sa.Column("gates_opened_at", sa.Double(), nullable=True),
        sa.Column("intent", sa.String(length=32), nullable=True),
        sa.Column("intent_at", sa.Double(), nullable=True),
        sa.Column("intent_by", sa.String(length=128), nullable=True),
        sa.Column("intent_why", sa.Text(), nullable=True),
        sa.Column("failure", sa.String(length=32), nullable=True),
        sa.Column("failure_at", sa.Double(), nullable=True),
        sa.Column("failure_rank", sa.Integer(), nullable=True),
        sa.Column("failure_detail", sa.Text(), nullable=True),
        sa.Column("succeeded_at", sa.Double(), nullable=True),
        sa.Column("released_at", sa.Double(), nullable=True),
        sa.Column("cause", sa.String(length=32), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("charged", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.CheckConstraint("state IN ('Waiting', 'Granted', 'Released')", name=op.f("ck_claim_state")),
        sa.ForeignKeyConstraint(["cluster"], ["cluster.name"], name=op.f("fk_claim_cluster")),
        sa.ForeignKeyConstraint(["run_uid"], ["run.uid"], name=op.f("fk_claim_run_uid")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_claim")),
        sa.UniqueConstraint("run_uid", "attempt", name=op.f("uq_claim_run_uid_attempt")),
    )
    _index(op, "ix_claim_open", "claim", ["cluster"], "state <> 'Released'", unique=False)
    _index(op, "uq_claim_live", "claim", ["run_uid"], "state <> 'Released'", unique=True)
    _index(op, "uq_claim_master", "claim", ["master_host", "master_port"], "state = 'Granted'", unique=True)
    op.create_table(
        "allocation",
        sa.Column("claim", SERIAL, nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("machine", sa.String(length=253), nullable=False),
        sa.Column("gpu_mask", sa.BigInteger(), nullable=False),
        sa.Column("cpu_cores", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("hcas", sa.JSON(), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["claim"], ["claim.id"], name=op.f("fk_allocation_claim")),
        sa.PrimaryKeyConstraint("claim", "rank", name=op.f("pk_allocation")),
    )
    _index(op, "ix_allocation_live", "allocation", ["cluster", "machine"], "live", unique=False)
    op.create_table(
        "reservation",
        sa.Column("claim", SERIAL, nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("machine", sa.String(length=253), nullable=False),
        sa.Column("gpu_mask", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["claim"], ["claim.id"], name=op.f("fk_reservation_claim")),
        sa.PrimaryKeyConstraint("claim", "cluster", "machine", name=op.f("pk_reservation")),
    )
    op.create_table(
        "worker",
        sa.Column("run_uid", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("machine", sa.String(length=253), nullable=False),
        sa.Column("desired", sa.String(length=8), nullable=False),
        sa.Column("grace_seconds", sa.Double(), nullable=False),
        sa.Column("observed", sa.String(length=16), server_default="none", nullable=False),
        sa.Column("lost", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("gone", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("oom", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("arrived_at", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("gate_opened_at", sa.Double(), nullable=True),
        sa.CheckConstraint("desired IN ('hold', 'run', 'stop')", name=op.f("ck_worker_desired")),
        sa.CheckConstraint(
            "observed IN ('none', 'preparing', 'arrived', 'running', 'exited', 'failed')",
            name=op.f("ck_worker_observed"),
        ),
        sa.ForeignKeyConstraint(["run_uid"], ["run.uid"], name=op.f("fk_worker_run_uid")),
        sa.PrimaryKeyConstraint("run_uid", "attempt", "rank", name=op.f("pk_worker")),
    )
    _index(op, "ix_worker_on_machine", "worker", ["cluster", "machine"], "NOT gone", unique=False)


def _records(op: Operations) -> None:
    op.create_table(
        "outbox",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("run_uid", sa.String(length=32), nullable=False),
        sa.Column("workflow_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("sent_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    _index(op, "ix_outbox_unsent", "outbox", ["cluster", "id"], "sent_at IS NULL", unique=False)
    op.create_table(
        "event",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("workspace", sa.String(length=32), nullable=False),
        sa.Column("run_uid", sa.String(length=32), nullable=True),
        sa.Column("run_name", sa.String(length=63), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("actor", sa.String(length=128), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
    )
    op.create_index("ix_event_run", "event", ["run_uid", "id"], unique=False)
    op.create_index("ix_event_workspace", "event", ["workspace", "id"], unique=False)
    op.create_table(
        "log_request",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("machine", sa.String(length=253), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_request")),
    )
    op.create_index("ix_log_request_machine", "log_request", ["cluster", "machine"], unique=False)
    op.create_table(
        "change",
        sa.Column("seq", SERIAL, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("key", sa.String(length=320), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_change")),
        sqlite_autoincrement=True,
    )
