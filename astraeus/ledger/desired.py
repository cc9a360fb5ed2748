"""What must run on machines: the full desired state an agent acts on, and what an attempt's workers run."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import and_, func, select

from astraeus.ledger import tenancy
from astraeus.ledger.cipher import Cipher
from astraeus.ledger.core import Tx
from astraeus.ledger.environment import gpu_indices, worker_environment
from astraeus.ledger.tables import allocation, claim, drive, machine, run, worker, workspace
from astraeus.model.agent import DesiredWorker, DriveBind, Launch
from astraeus.model.errors import Conflict, Invalid, NotFound
from astraeus.model.messages import AttemptRef
from astraeus.model.names import worker_name
from astraeus.model.spec import DriveMount, RunSpec


async def desired(tx: Tx, cluster: str, machines: Collection[str]) -> tuple[str, list[DesiredWorker]]:
    """The version and the workers that must exist on these machines; all others there must be killed.

    The version is a digest of everything the answer is made of, so it changes whenever the answer does.
    """
    rows = await _rows(tx, cluster, machines)
    return _digest(rows), [_worker(cluster, row) for row in rows]


async def desired_version(tx: Tx, cluster: str, machines: Collection[str]) -> str:
    """The version alone, for those who only ask whether anything changed."""
    return _digest(await _rows(tx, cluster, machines))


async def _rows(tx: Tx, cluster: str, machines: Collection[str]) -> Sequence[Any]:
    query = (
        select(
            *(worker.c[name] for name in ("run_uid", "attempt", "rank", "machine", "desired", "grace_seconds")),
            *(claim.c[name] for name in ("network", "master_host", "master_port")),
            func.coalesce(run.c.size, claim.c.size).label("size"),
            allocation.c.gpu_mask,
            allocation.c.hcas,
            run.c.name.label("run_name"),
            workspace.c.organisation,
            workspace.c.name.label("workspace_name"),
            machine.c.facts["socket_ifname"].label("socket_ifname"),
        )
        .join(claim, and_(claim.c.run_uid == worker.c.run_uid, claim.c.attempt == worker.c.attempt))
        .join(allocation, and_(allocation.c.claim == claim.c.id, allocation.c.rank == worker.c.rank))
        .join(run, run.c.uid == worker.c.run_uid)
        .join(workspace, workspace.c.id == run.c.workspace)
        .join(machine, and_(machine.c.cluster == worker.c.cluster, machine.c.name == worker.c.machine))
        .where(worker.c.cluster == cluster, worker.c.machine.in_(machines), ~worker.c.gone)
        .where(claim.c.state != "Released")
        .order_by(worker.c.run_uid, worker.c.attempt, worker.c.rank)
    )
    return (await tx.conn.execute(query)).all()


def _digest(rows: Sequence[Any]) -> str:
    content = repr([tuple(row) for row in rows])
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _worker(cluster: str, row: Any) -> DesiredWorker:
    gpus = gpu_indices(row.gpu_mask)
    return DesiredWorker(
        run_uid=row.run_uid,
        attempt=row.attempt,
        rank=row.rank,
        machine=row.machine,
        name=worker_name(row.run_name, row.rank),
        desired=row.desired,
        grace_seconds=row.grace_seconds,
        gpus=gpus,
        env=worker_environment(
            run_name=row.run_name,
            workspace=f"{row.organisation}/{row.workspace_name}",
            cluster=cluster,
            attempt=row.attempt,
            rank=row.rank,
            size=row.size,
            gpus=gpus,
            network=row.network["network"] if row.network else "",
            master_host=row.master_host,
            master_port=row.master_port,
            hcas=row.hcas,
            socket_ifname=row.socket_ifname,
        ),
    )


async def launch(tx: Tx, cipher: Cipher, ref: AttemptRef) -> Launch:
    """What every worker of an attempt runs, with its secrets opened.

    Raises NotFound for an attempt that does not exist, Conflict for one that is over, and Invalid, naming it, when
    a drive or a secret of the specification is not in the workspace: then the attempt cannot start.
    """
    row = await _attempt(tx, ref)
    task = RunSpec.model_validate(row["spec"]).task_template
    secrets = await _secrets(tx, cipher, row["workspace"], task.secret_env)
    path = f"{row['organisation']}/{row['workspace_name']}"
    return Launch(
        run_uid=ref.run_uid,
        attempt=ref.attempt,
        run_name=row["name"],
        workspace=path,
        image=task.image,
        command=task.command,
        args=task.args,
        env=secrets | task.env,
        drives=await _drives(tx, row["workspace"], path, task.drives),
        configs=task.configs,
        memory_bytes=row["memory_bytes"] or 0,
    )


async def _attempt(tx: Tx, ref: AttemptRef) -> Mapping[str, Any]:
    specified, first = run.alias("specified"), func.coalesce(run.c.rank, 0)
    query = (
        select(
            claim.c.state,
            run.c.name,
            func.coalesce(specified.c.spec, run.c.spec).label("spec"),
            run.c.workspace,
            workspace.c.organisation,
            workspace.c.name.label("workspace_name"),
            allocation.c.memory_bytes,
        )
        .join(run, run.c.uid == claim.c.run_uid)
        .join(workspace, workspace.c.id == run.c.workspace)
        .outerjoin(specified, specified.c.uid == run.c.parent)
        .outerjoin(allocation, and_(allocation.c.claim == claim.c.id, allocation.c.rank == first))
        .where(claim.c.run_uid == ref.run_uid, claim.c.attempt == ref.attempt)
    )
    row = (await tx.conn.execute(query)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no attempt {ref.attempt} of run {ref.run_uid}")
    if row["state"] != "Granted":
        raise Conflict(f"Attempt {ref.attempt} of {row['name']} holds no room ({row['state']}); start nothing for it")
    return dict(row)


async def _secrets(tx: Tx, cipher: Cipher, workspace_id: str, names: Sequence[str]) -> dict[str, str]:
    if not names:
        return {}
    opened = await tenancy.open_secrets(tx, cipher, workspace_id, names)
    missing = [name for name in names if name not in opened]
    if missing:
        raise Invalid(
            f"The workspace has no secret named {', '.join(missing)}; put it there or take it out of secret_env"
        )
    return dict(opened)


async def _drives(tx: Tx, workspace_id: str, path: str, mounts: Sequence[DriveMount]) -> list[DriveBind]:
    if not mounts:
        return []
    query = select(drive).where(drive.c.workspace == workspace_id, drive.c.name.in_([mount.name for mount in mounts]))
    known = {row["name"]: row for row in (await tx.conn.execute(query)).mappings()}
    missing = [mount.name for mount in mounts if mount.name not in known]
    if missing:
        raise Invalid(f"The workspace has no drive named {', '.join(missing)}; create it or take it out of drives")
    return [
        DriveBind(
            workspace=path,
            name=mount.name,
            kind=known[mount.name]["kind"],
            path=known[mount.name]["path"],
            mount_path=mount.mount_path,
            read_only=mount.mode == "ReadOnly",
        )
        for mount in mounts
    ]
