"""`Client`: the API for programs, with the product's own values as answers."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from astraeus.client import config
from astraeus.client.api import Api, Document
from astraeus.client.connection import Connection
from astraeus.model.machine import MachineView
from astraeus.model.run import FINAL, AttemptView, EventView, RunView
from astraeus.model.spec import Submission

Specification = Submission | Mapping[str, Any]


class Client:
    """Typed calls of one workspace. Every method raises `ApiError` when the API refuses or is away.

    `api_base` is the whole base of the workspace (`$ASTRALYX_API`); what is not given is found as the CLI finds it.
    `api` has the same calls, and the rest, in the API's own JSON.
    """

    def __init__(self, api_base: str | None = None, token: str | None = None, timeout: float = 30.0) -> None:
        if not (api_base and token):
            access = config.load(api_base, token)
            api_base, token = access.api, access.token
        self._connection = Connection(api_base, token, timeout)
        self.api = Api(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the pooled sockets."""
        self._connection.close()

    def submit(self, specification: Specification, idempotency_key: str | None = None) -> RunView:
        """Submit a run; one call is one run however often the connection breaks."""
        return RunView.model_validate(self.api.submit(_plain(specification), idempotency_key))

    def plan(self, specification: Specification) -> Document:
        """What would happen to this specification now; nothing is written."""
        return self.api.plan(_plain(specification))

    def runs(
        self,
        *,
        states: Sequence[str] = (),
        labels: Sequence[str] = (),
        cluster: str | None = None,
        name: str | None = None,
    ) -> Iterator[RunView]:
        """All runs, or all that had a name, oldest first; `labels` are `key=value`."""
        return map(RunView.model_validate, self.api.runs(states=states, labels=labels, cluster=cluster, name=name))

    def run(self, name: str) -> RunView:
        """One run, with the workers of its latest attempt; here and below a run is named by its name or its uid."""
        return RunView.model_validate(self.api.run(name))

    def wait(self, name: str, timeout: float | None = None, every: float = 1.0) -> RunView:
        """The run once it has ended, whoever has its name by then; `TimeoutError` after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        run = self.run(name)
        while run.state not in FINAL:
            if end is not None and time.monotonic() + every > end:
                raise TimeoutError(f"{name} is still {run.state}: {run.reason}")
            time.sleep(every)
            run = self.run(run.metadata["uid"])
        return run

    def cancel(self, name: str, why: str | None = None) -> None:
        """Stop a run for good."""
        self.api.order(name, "cancel", why)

    def preempt(self, name: str, why: str | None = None) -> None:
        """Stop a run now and let it wait to run again; not charged."""
        self.api.order(name, "preempt", why)

    def restart(self, name: str, why: str | None = None) -> None:
        """Stop a run and place it again; not charged."""
        self.api.order(name, "restart", why)

    def hold(self, name: str, why: str | None = None) -> None:
        """Keep a waiting run from being placed."""
        self.api.order(name, "hold", why)

    def release(self, name: str) -> None:
        """Let a held run be placed."""
        self.api.order(name, "release")

    def delete(self, name: str) -> None:
        """Stop a run if it is live, then hide it."""
        self.api.delete_run(name)

    def events(self, run: str | None = None) -> Iterator[EventView]:
        """What happened, in order, in the workspace or to one run."""
        return map(EventView.model_validate, self.api.run_events(run) if run else self.api.events())

    def attempts(self, name: str) -> Iterator[AttemptView]:
        """The attempts of a run, in order."""
        return map(AttemptView.model_validate, self.api.attempts(name))

    def logs(
        self, worker: str, *, attempt: int | None = None, tail: int | None = None, follow: bool = False
    ) -> AbstractContextManager[Iterator[bytes]]:
        """A worker's log as chunks of bytes, cut anywhere: `with client.logs("run-0") as chunks: …`."""
        return self.api.logs(worker, attempt=attempt, tail=tail, follow=follow)

    def machines(self, cluster: str | None = None) -> Iterator[MachineView]:
        """The machines of a cluster, the workspace's own unless another is named."""
        return map(MachineView.model_validate, self.api.machines(cluster))

    def machine(self, name: str, cluster: str | None = None) -> MachineView:
        """One machine."""
        return MachineView.model_validate(self.api.machine(name, cluster))

    def templates(self) -> Iterator[Document]:
        """The workspace's templates."""
        return self.api.templates()

    def save_template(self, name: str, specification: Specification) -> None:
        """Create or replace a template."""
        self.api.save_template(name, _plain(specification))

    def run_template(
        self,
        template: str,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        changes: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> RunView:
        """Submit a template under a new name; `changes` maps dotted paths to values."""
        return RunView.model_validate(
            self.api.run_template(template, name, labels=labels, changes=changes, idempotency_key=idempotency_key)
        )


def _plain(specification: Specification) -> Any:
    return specification.model_dump(mode="json") if isinstance(specification, Submission) else dict(specification)
