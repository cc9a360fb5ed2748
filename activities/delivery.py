"""The courier: brings outbox rows to their workflows, starts workflows of runs, and wakes schedulers."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from astraeus.ledger import claims, outbox, runs, tenancy
from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.outbox import OutboxRow
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tenancy import Workspace
from astraeus.model.spec import UNLIMITED, RunSpec
from workflows.contracts import RunLife
from workflows.run import RunWorkflow
from workflows.scheduler import SchedulerWorkflow

log = logging.getLogger(__name__)

RPC = timedelta(seconds=5)
AT_ONCE = 16
WORKSPACE = SearchAttributeKey.for_keyword("AstraeusWorkspace")
CLUSTER = SearchAttributeKey.for_keyword("AstraeusCluster")
RUN = SearchAttributeKey.for_keyword("AstraeusRun")
STATE = SearchAttributeKey.for_keyword("AstraeusState")
PRIORITY = SearchAttributeKey.for_int("AstraeusPriority")
SEARCH_ATTRIBUTES = (WORKSPACE, CLUSTER, RUN, STATE, PRIORITY)


def life_of(row: RunRow, workspace: Workspace, attempt: int = 0) -> RunLife:
    """The start argument of a run's workflow: ids and small values of its row, never the spec.

    `attempt` is the last one that has ended; what failures of earlier ones cost is in the row.
    """
    spec = RunSpec.model_validate(row.spec)
    task = spec.task_template
    return RunLife(
        run_uid=row.uid,
        workspace=workspace.path,
        name=row.name,
        cluster=row.cluster,
        priority=spec.priority,
        patience_seconds=task.requested_resources.topology.patience_seconds,
        time_limit_seconds=task.time_limit_seconds,
        failure_rule=spec.failure_rule,
        alone=row.parent is not None,
        budget_size=None if spec.restart_budget == UNLIMITED else int(spec.restart_budget),
        charged=row.budget - row.budget_left if row.budget is not None and row.budget_left is not None else 0,
        attempt=attempt,
        held_by=row.submitted_by if row.held else None,
    )


class Courier:
    """Delivers at least once, in order per run; whatever cannot be delivered stays in the outbox."""

    def __init__(self, ledger: Ledger, client: Client, task_queue: str) -> None:
        self.ledger = ledger
        self.client = client
        self.task_queue = task_queue
        self._bells: dict[str, Bell] = {}

    async def after(self, tx: Tx) -> None:
        """What a committed transaction calls for: its outbox rows delivered and the schedulers it concerns woken."""
        for cluster in {key for kind, key in tx.changes if kind == "cluster"}:
            await self.ring(cluster)
        if tx.outbox:
            await self.deliver(tx.outbox)

    async def deliver(self, ids: Sequence[int]) -> None:
        """Deliver these rows, those of one run in their order; failures are left to the next delivery."""
        async with self.ledger.reading() as tx:
            rows = await outbox.pending(tx, None, len(ids), ids=ids)
        await self.send(rows)

    async def send(self, rows: Iterable[OutboxRow]) -> int:
        """Signal each row's workflow and mark what arrived; answers how many did."""
        of_run: dict[str, list[OutboxRow]] = defaultdict(list)
        for row in rows:
            of_run[row.workflow_id].append(row)
        gate = asyncio.Semaphore(AT_ONCE)
        sent = [id for ids in await asyncio.gather(*(self._send(r, gate) for r in of_run.values())) for id in ids]
        if sent:
            async with self.ledger.transaction() as tx:
                await outbox.mark_sent(tx, sent)
        return len(sent)

    async def _send(self, rows: list[OutboxRow], gate: asyncio.Semaphore) -> list[int]:
        sent: list[int] = []
        async with gate:
            for row in rows:
                try:
                    await self._signal(row)
                except (RPCError, ValueError) as error:
                    # Only this run waits: one that cannot be told must not keep the others from hearing.
                    log.warning("message %s to %s waits: %s", row.id, row.workflow_id, error)
                    break
                sent.append(row.id)
        return sent

    async def _signal(self, row: OutboxRow) -> None:
        """Bring one message to its workflow, unless the run is over. Raises `RPCError`."""
        try:
            handle = self.client.get_workflow_handle(row.workflow_id)
            await handle.signal(row.signal, row.message, rpc_timeout=RPC)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND or not await self._is_over(row.run_uid):
                raise

    async def _is_over(self, run_uid: str) -> bool:
        """Whether a run whose workflow is not there has ended; else a workflow is started for the next try.

        A workflow that was never started, that was terminated by hand, or whose Temporal lost its database: the
        ledger knows the run, and the new workflow goes on with the attempt that the run has.
        """
        async with self.ledger.reading() as tx:
            row = await runs.by_uid(tx, run_uid)
            workspace = await tenancy.get_workspace(tx, row.workspace) if row else None
            attempt = await claims.last_ended(tx, run_uid)
        if row is None or workspace is None or row.final:
            return True
        await self.start(row, workspace, attempt, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)
        return False

    async def start(
        self,
        row: RunRow,
        workspace: Workspace,
        attempt: int = 0,
        reuse: WorkflowIDReusePolicy = WorkflowIDReusePolicy.REJECT_DUPLICATE,
    ) -> None:
        """Start the run's workflow unless there is one or was one, and note in the ledger that it was started.

        It goes on after `attempt`; `reuse` says which earlier workflow of the run may have a successor.
        """
        attributes = TypedSearchAttributes(
            [
                SearchAttributePair(WORKSPACE, workspace.path),
                SearchAttributePair(CLUSTER, row.cluster),
                SearchAttributePair(RUN, row.name),
                SearchAttributePair(STATE, "Pending"),
                SearchAttributePair(PRIORITY, row.priority),
            ]
        )
        try:
            await self.client.start_workflow(
                RunWorkflow.run,
                life_of(row, workspace, attempt),
                id=runs.workflow_id(row, workspace),
                task_queue=self.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=reuse,
                search_attributes=attributes,
                static_summary=f"{row.worker or row.name} on {row.cluster}",
                rpc_timeout=RPC,
            )
        except WorkflowAlreadyStartedError:
            log.info("workflow of run %s ended before", row.uid)
        async with self.ledger.transaction() as tx:
            await runs.mark_workflow_started(tx, row.uid)

    async def ring(self, cluster: str) -> None:
        """Wake the cluster's scheduler; calls that come while one is under way become one more."""
        bell = self._bells.setdefault(cluster, Bell(self.client, self.task_queue, cluster))
        await bell.ring()


class Bell:
    """One cluster's wake-up line: never more than one signal under way and one to follow."""

    def __init__(self, client: Client, task_queue: str, cluster: str) -> None:
        self.client = client
        self.task_queue = task_queue
        self.cluster = cluster
        self._busy = False
        self._again = False

    async def ring(self) -> None:
        """Signal, or make sure that the one under way is followed by another."""
        if self._busy:
            self._again = True
            return
        self._busy = True
        try:
            await self._signal()
            while self._again:
                self._again = False
                await self._signal()
        finally:
            self._busy = False

    async def _signal(self) -> None:
        workflow_id = f"scheduler/{self.cluster}"
        try:
            await self.client.get_workflow_handle(workflow_id).signal(SchedulerWorkflow.wake, rpc_timeout=RPC)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                log.warning("scheduler of %s was not woken: %s", self.cluster, error.message)
                return
            await self.client.start_workflow(
                SchedulerWorkflow.run,
                self.cluster,
                id=workflow_id,
                task_queue=self.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                rpc_timeout=RPC,
            )
