"""Activities that died between their commit and what follows from it: the next try makes it good."""

import dataclasses
from typing import Any, cast

import pytest
from support.scene import CLUSTER, Scene
from temporalio.testing import ActivityEnvironment

from activities.delivery import Courier
from activities.placing import Placing
from astraeus.ledger.core import Ledger, Tx
from astraeus.model.messages import AttemptRef
from workflows.contracts import ClaimOrder, Closing


class Killed:
    """A courier whose process is killed before it wakes anybody; the next one lives."""

    def __init__(self) -> None:
        self.dead = True
        self.woken: list[str] = []

    async def after(self, tx: Tx) -> None:
        for kind, key in tx.changes:
            if kind == "cluster":
                await self.ring(key)

    async def ring(self, cluster: str) -> None:
        if self.dead:
            self.dead = False
            raise ConnectionError("killed")
        self.woken.append(cluster)


async def try_twice(activity: Any, order: Any) -> None:
    """The first try dies; the second knows that it is one."""
    env = ActivityEnvironment()
    with pytest.raises(ConnectionError):
        await env.run(activity, order)
    env.info = dataclasses.replace(env.info, attempt=2)
    await env.run(activity, order)


async def test_a_scheduler_is_woken_although_the_first_try_died_after_its_commit(sqlite_ledger: Ledger) -> None:
    scene = await Scene.start(sqlite_ledger)
    row = await scene.submit("a")
    ref = AttemptRef(run_uid=row.uid, attempt=1)
    courier = Killed()
    placing = Placing(sqlite_ledger, cast(Courier, courier))
    await try_twice(placing.enter_claim, ClaimOrder(ref=ref, cluster=CLUSTER, patience_seconds=60))
    assert courier.woken == [CLUSTER]
    courier.dead = True
    await try_twice(placing.widen_claim, ref)
    assert courier.woken == [CLUSTER] * 2
    courier.dead = True
    why = "Cancelled by ada"
    closing = {"cause": "cancelled", "detail": why, "charged": False, "state": "Cancelled", "reason": why}
    await try_twice(placing.close_attempt, Closing(ref=ref, cluster=CLUSTER, budget_left=10, **closing))
    assert courier.woken == [CLUSTER] * 3
    assert (await scene.run(row)).state == "Cancelled"
