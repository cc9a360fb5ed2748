"""The statements of a commit, made once: SQLAlchemy takes longer to put one together than SQLite to run it."""

from typing import Any

from sqlalchemy import BindParameter, Insert, Select, Update, bindparam, exists, func, insert, literal, select, update

from astraeus.ledger.rooms import lock_machines, room_of
from astraeus.ledger.tables import allocation, claim, cluster, event, machine, reservation, run, worker, workspace
from astraeus.model.machine import DEFAULT_GRACE_SECONDS

CLUSTER: BindParameter[str] = bindparam("b_cluster")
CLAIMS: BindParameter[Any] = bindparam("b_claims", expanding=True)
NAMES: BindParameter[Any] = bindparam("b_names", expanding=True)
HOSTS: BindParameter[Any] = bindparam("b_hosts", expanding=True)

TERM = select(cluster.c.pass_term).where(cluster.c.name == CLUSTER).with_for_update(key_share=True)

PARTIES = (
    select(claim, run.c.name, run.c.workspace, run.c.final, run.c.held, run.c.delete_asked_at)
    .add_columns(run.c.parent, run.c.rank, workspace.c.organisation, workspace.c.name.label("workspace_name"))
    .join(run, run.c.uid == claim.c.run_uid)
    .join(workspace, workspace.c.id == run.c.workspace)
    .where(claim.c.id.in_(CLAIMS), claim.c.cluster == CLUSTER)
    .order_by(claim.c.id)
    .with_for_update(key_share=True, of=claim)
)

PORTS = select(claim.c.master_host, claim.c.master_port).where(
    claim.c.state == "Granted", claim.c.master_host.in_(HOSTS)
)

RESERVED = select(reservation.c.claim, reservation.c.machine, reservation.c.gpu_mask).where(
    reservation.c.cluster == CLUSTER
)


def _rooms() -> Select[Any]:
    """The machines of these names that take work, locked."""
    m = machine.c
    return (
        lock_machines(CLUSTER, NAMES)
        .add_columns(m.address, m.gpus, m.used_gpus, m.cpu_cores, m.used_cpu, m.memory_bytes, m.used_memory)
        .where(m.state == "Ready", ~m.cordoned)
    )


def _taking() -> Update:
    """What the live allocations of these claims hold goes onto their machines, by compare-and-set."""
    room, m = room_of(CLAIMS), machine.c
    return (
        update(machine)
        .where(m.cluster == CLUSTER, m.name == room.c.machine, m.state == "Ready", ~m.cordoned)
        .where(m.used_gpus.bitwise_and(room.c.gpu_mask) == 0)
        .values(
            used_gpus=m.used_gpus.bitwise_or(room.c.gpu_mask),
            used_cpu=m.used_cpu + room.c.cpu_cores,
            used_memory=m.used_memory + room.c.memory_bytes,
        )
    )


def _asking() -> Insert:
    """Every member of these claims is wanted at its gate; one that exists already is left out."""
    own = run.c.spec["task_template"]["stop_grace_seconds"].as_float()
    grace = func.coalesce(own, machine.c.facts["stop_grace_seconds"].as_float(), float(DEFAULT_GRACE_SECONDS))
    held = allocation.c
    same = (worker.c.run_uid == claim.c.run_uid) & (worker.c.attempt == claim.c.attempt)
    members = (
        select(claim.c.run_uid, claim.c.attempt, held.rank, held.cluster, held.machine, literal("hold"), grace)
        .select_from(allocation)
        .join(claim, claim.c.id == held.claim)
        .join(run, run.c.uid == claim.c.run_uid)
        .join(machine, (machine.c.cluster == held.cluster) & (machine.c.name == held.machine))
        .where(held.claim.in_(CLAIMS), held.live, ~exists().where(same, worker.c.rank == held.rank))
        .order_by(held.claim, held.rank)
    )
    columns = ["run_uid", "attempt", "rank", "cluster", "machine", "desired", "grace_seconds"]
    return insert(worker).from_select(columns, members)


ASK = _asking()
ALLOCATE, RECORD = insert(allocation), insert(event)
ROOMS = _rooms()
TAKE = _taking().returning(machine.c.name)

GRANT = (
    update(claim)
    .where(claim.c.id == bindparam("b_claim"), claim.c.state == "Waiting")
    .values(
        state="Granted",
        granted_at=bindparam("b_now"),
        waiting_reason=None,
        size=bindparam("b_size"),
        gpus_per_worker=bindparam("b_gpus"),
        rung=bindparam("b_rung"),
        network=bindparam("b_network"),
        master_host=bindparam("b_host"),
        master_port=bindparam("b_port"),
    )
)

SHOW = (
    update(run)
    .where(run.c.uid == bindparam("b_run"), ~run.c.final)
    .values(state="Starting", reason=bindparam("b_reason"), network=bindparam("b_network"))
)
