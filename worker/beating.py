"""Activities beat while they run, so that Temporal gives those of a dead worker process to another within seconds."""

import asyncio
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

BEAT_SECONDS = 1.0
OWN_BEAT = frozenset({"watch_cluster"})
"""These beat by themselves, as a sign that their loop goes round."""


class Beating(Interceptor):
    """Adds the beat to every activity of a worker process."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Put the beat around the activity."""
        return _Beating(next)


class _Beating(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Run the activity, beating once a second."""
        if activity.info().activity_type in OWN_BEAT:
            return await self.next.execute_activity(input)
        beat = asyncio.create_task(_beat())
        try:
            return await self.next.execute_activity(input)
        finally:
            beat.cancel()


async def _beat() -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        activity.heartbeat()
