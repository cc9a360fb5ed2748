"""SchedulerWorkflow: one per cluster. It collapses wake-ups into passes and sleeps to the next deadline."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows import contracts
    from workflows.contracts import PassOrder
    from workflows.limits import ALIVE

SAFETY_SECONDS = 60.0
PASS = timedelta(seconds=60)
RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))


@workflow.defn
class SchedulerWorkflow:
    """The cluster's one scheduler: whoever changes room or claims wakes it."""

    @workflow.init
    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.woken = True

    @workflow.signal(description="room or claims changed")
    def wake(self) -> None:
        """Ask for a pass; any number of wake-ups before it begins are one."""
        self.woken = True

    @workflow.run
    async def run(self, cluster: str) -> None:
        """Pass after pass, for ever."""
        while not workflow.info().is_continue_as_new_suggested():
            self.woken = False
            done = await workflow.execute_activity(
                contracts.scheduling_pass,
                PassOrder(cluster=cluster),
                start_to_close_timeout=PASS,
                heartbeat_timeout=ALIVE,
                retry_policy=RETRY,
                summary="scheduling pass",
            )
            workflow.set_current_details(f"granted {done.granted} in the last pass, {done.waiting} waiting")
            pause = SAFETY_SECONDS if done.next_change_seconds is None else done.next_change_seconds
            try:
                await workflow.wait_condition(
                    lambda: self.woken,
                    timeout=timedelta(seconds=min(max(pause, 1.0), SAFETY_SECONDS)),
                    timeout_summary="until a wake-up or the next deadline",
                )
            except TimeoutError:
                pass
        # A wake-up that arrives from here on is not lost: the next run begins with a pass.
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(cluster)
