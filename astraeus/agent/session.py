"""The talk with the API: a held-back sync that is also the heartbeat, and short ones when there is news.

Reports are repeated until a sync that carried them was answered. The desired state is only ever taken from the
held-back sync, one at a time, so that an older answer cannot overtake a newer one.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable

from astraeus.agent.disk import State
from astraeus.agent.hosts import Host, Worker
from astraeus.agent.keeper import Keeper
from astraeus.agent.link import Backoff, Link
from astraeus.agent.uploads import Uploads
from astraeus.model.agent import HEARTBEAT_SECONDS, SyncRequest, SyncResponse
from astraeus.model.errors import Away

FACTS_AT_ONCE = 500
GATHERING_SECONDS = 0.002
"""How long news wait for more of the same moment, such as the other members of a gang."""

log = logging.getLogger("astraeus.agent")


class Session:
    """One agent's session with the API."""

    def __init__(self, link: Link, hosts: Iterable[Host], cluster: str | None) -> None:
        self.id = uuid.uuid4().hex
        self.hosts = list(hosts)
        self.cluster = cluster
        self._link = link
        self._seen: str | None = None
        self._unreported: dict[Worker, None] = {}
        self._under_way: dict[Worker, State] = {}
        self._news = asyncio.Event()
        self._connected = asyncio.Event()

    def changed(self, worker: Worker) -> None:
        """A worker has something to report."""
        self._unreported[worker] = None
        self._news.set()

    async def beat(self, keeper: Keeper, uploads: Uploads) -> None:
        """Sync for ever. Ends only with `Conflict`, when another agent has taken the machines over."""
        backoff = Backoff()
        named: list[tuple[str, str]] = []
        while True:
            hosts = [host for host in self.hosts if host.reachable]
            if not hosts:
                await asyncio.sleep(0.1)
                continue
            if (present := [(host.name, host.boot_id) for host in hosts]) != named:
                named = present
                self._seen = None if self._seen is None else ""
            due = [host for host in hosts if host.facts_due]
            wait = HEARTBEAT_SECONDS if len(due) <= FACTS_AT_ONCE else 0.0
            began = time.monotonic()
            try:
                answer = await self._sync(hosts, due[:FACTS_AT_ONCE], wait)
            except Away as fault:
                if self._connected.is_set() or self._seen is None:
                    log.warning("the API is away, workers go on: %s", fault)
                self._connected.clear()
                self._say_again(hosts)
                await backoff.wait()
                continue
            backoff.reset()
            self._connected.set()
            self._seen = answer.version
            self._obey(answer, hosts, keeper, uploads)
            if answer.workers is None and not answer.logs and not answer.need_facts:
                # A server that does not hold answers back must not be asked without end.
                await asyncio.sleep(max(0.0, min(0.5, wait - (time.monotonic() - began))))

    def _say_again(self, hosts: Iterable[Host]) -> None:
        """Report every worker anew: a database that comes back may have forgotten what it took last."""
        for host in hosts:
            self._unreported |= dict.fromkeys(host.workers.values())

    async def tell(self) -> None:
        """Report news at once, all of a moment together."""
        backoff = Backoff()
        while True:
            await self._news.wait()
            await self._connected.wait()
            await asyncio.sleep(GATHERING_SECONDS)
            self._news.clear()
            reachable = {host for host in self.hosts if host.reachable}
            hosts = list(dict.fromkeys(worker.host for worker in self._due(reachable)))
            if not hosts:
                continue
            try:
                await self._sync(hosts, [], 0.0, report_only=True)
                backoff.reset()
            except Away:
                await backoff.wait()
                self._news.set()

    async def _sync(self, hosts: list[Host], facts: list[Host], wait: float, report_only: bool = False) -> SyncResponse:
        told = self._due(set(hosts))
        now = time.time()
        said = {host: host.facts for host in facts}
        request = SyncRequest(
            session=self.id,
            cluster=self.cluster,
            machines=[host.report(host in said) for host in hosts],
            workers=[worker.report(state, now) for worker, state in told.items()],
            seen=self._seen,
            wait_seconds=wait,
            report_only=report_only,
        )
        self._under_way |= told
        try:
            answer = await self._link.sync(request)
        finally:
            for worker, state in told.items():
                if self._under_way.get(worker) is state:
                    del self._under_way[worker]
        for worker, state in told.items():
            if worker.state is state:
                self._unreported.pop(worker, None)
        for host, given in said.items():
            if host.facts is given:
                host.facts_due = False
        return answer

    def _due(self, hosts: set[Host]) -> dict[Worker, State]:
        """What nobody has taken yet and no other sync is carrying."""
        due: dict[Worker, State] = {}
        for worker in list(self._unreported):
            if worker.forgotten or worker.state is None:
                del self._unreported[worker]
            elif worker.host in hosts and self._under_way.get(worker) is not worker.state:
                due[worker] = worker.state
        return due

    def _obey(self, answer: SyncResponse, hosts: list[Host], keeper: Keeper, uploads: Uploads) -> None:
        for name in answer.need_facts:
            if name in keeper.hosts:
                keeper.hosts[name].facts_due = True
        if answer.workers is not None:
            keeper.apply(answer.workers, hosts)
        for request in answer.logs:
            uploads.start(request)
