"""ClusterWorkflow: one per cluster. It keeps the machine watch alive, so that exactly one runs somewhere."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows import contracts
    from workflows.limits import ALIVE

WATCH = timedelta(minutes=30)
RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=1))


@workflow.defn
class ClusterWorkflow:
    """Holds the cluster's watch: leases, the outbox's courier, the sweep for workflows that are missing."""

    @workflow.run
    async def run(self, cluster: str) -> None:
        """Watch after watch, for ever; one that falls silent is started again elsewhere."""
        while not workflow.info().is_continue_as_new_suggested():
            await workflow.execute_activity(
                contracts.watch_cluster,
                cluster,
                start_to_close_timeout=WATCH,
                heartbeat_timeout=ALIVE,
                retry_policy=RETRY,
                summary=f"watch the machines of {cluster}",
            )
        workflow.continue_as_new(cluster)
