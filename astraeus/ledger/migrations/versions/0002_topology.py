"""What scans of the network found: fabrics, places, findings, measured bandwidths; GUIDs of adapters."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0002"
down_revision = "0001"

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade(op: Operations) -> None:
    """Add them."""
    op.add_column("nic", sa.Column("node_guid", sa.String(length=32), nullable=True))
    _fabrics(op)
    _findings(op)
    _scans(op)


def _cluster(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["cluster"], ["cluster.name"], name=f"fk_{table}_cluster")


def _fabrics(op: Operations) -> None:
    op.create_table(
        "topology_fabric",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("identity", sa.JSON(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("links", sa.LargeBinary(), nullable=False),
        sa.Column("scanned_at", sa.Double(), nullable=False),
        _cluster("topology_fabric"),
        sa.PrimaryKeyConstraint("cluster", "name", name="pk_topology_fabric"),
    )
    op.create_table(
        "topology_place",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("machine", sa.String(length=253), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("ports", sa.JSON(), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.CheckConstraint("source IN ('scan', 'file')", name=op.f("ck_topology_place_source")),
        _cluster("topology_place"),
        sa.PrimaryKeyConstraint("cluster", "machine", name="pk_topology_place"),
    )


def _findings(op: Operations) -> None:
    op.create_table(
        "topology_finding",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("fabric", sa.String(length=253), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("cost", sa.Text(), nullable=False),
        sa.Column("advice", sa.Text(), nullable=False),
        sa.Column("machines", sa.JSON(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        _cluster("topology_finding"),
        sa.PrimaryKeyConstraint("id", name="pk_topology_finding"),
    )
    op.create_index(
        "uq_topology_finding_open",
        "topology_finding",
        ["cluster", "key"],
        unique=True,
        sqlite_where=sa.text("closed_at IS NULL"),
        postgresql_where=sa.text("closed_at IS NULL"),
    )


def _scans(op: Operations) -> None:
    op.create_table(
        "topology_scan",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.String(length=128), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("state IN ('applied', 'held', 'discarded')", name=op.f("ck_topology_scan_state")),
        _cluster("topology_scan"),
        sa.PrimaryKeyConstraint("id", name="pk_topology_scan"),
    )
    op.create_index("ix_topology_scan_cluster", "topology_scan", ["cluster", "at"])
    op.create_table(
        "topology_measured",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("rung", sa.String(length=16), nullable=False),
        sa.Column("gpu_model", sa.String(length=128), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("busbw_gbps", sa.Double(), nullable=False),
        sa.Column("rails", sa.Integer(), nullable=True),
        sa.Column("gbps", sa.Double(), nullable=True),
        sa.Column("run_name", sa.String(length=63), nullable=True),
        sa.Column("actor", sa.String(length=128), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        _cluster("topology_measured"),
        sa.PrimaryKeyConstraint("id", name="pk_topology_measured"),
    )
    op.create_index("ix_topology_measured_key", "topology_measured", ["cluster", "rung", "gpu_model"])
