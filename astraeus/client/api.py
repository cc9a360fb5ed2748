"""Every REST call of a workspace, in the API's own JSON; `astraeus.client.client` puts types on top."""

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from astraeus.client.connection import PAGE, Connection, Json
from astraeus.client.errors import NOT_TEXT, ApiError, Unsendable
from astraeus.model.names import canonical, split_worker_name

Document = dict[str, Any]


class Api:
    """The calls of one workspace over a `Connection`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    # Runs

    def submit(self, specification: Json, idempotency_key: str | None = None) -> Document:
        """Submit a run; one call is one run however often the connection breaks."""
        return self._post("/runs", specification, key=idempotency_key)

    def plan(self, specification: Json) -> Document:
        """What would happen to this specification now; nothing is written."""
        return self._one("POST", "/runs:plan", body=specification, repeatable=True)

    def runs(
        self,
        *,
        states: Sequence[str] = (),
        labels: Sequence[str] = (),
        cluster: str | None = None,
        name: str | None = None,
    ) -> Iterator[Document]:
        """All runs, or all that had a name, oldest first; `labels` are `key=value`."""
        params = {"state": list(states) or None, "label": list(labels) or None, "cluster": cluster, "name": name}
        return self.connection.pages("/runs", params)

    def run(self, name: str) -> Document:
        """One run by its name or uid, with the workers of its latest attempt."""
        return self._one("GET", _at("runs", name))

    def explain(self, name: str) -> Document:
        """Why a run is where it is: blockers, place in the queue, what would unblock it."""
        return self._one("GET", _at("runs", name) + "/explain")

    def order(self, name: str, order: str, why: str | None = None) -> Document | None:
        """`cancel`, `preempt`, `restart`, `hold` or `release` a run; given twice it changes nothing more."""
        body = {"why": why} if why else None
        safe = order in {"cancel", "hold", "release"}
        return self._maybe("POST", f"{_at('runs', name)}:{order}", body=body, repeatable=safe)

    def delete_run(self, name: str) -> Document | None:
        """Stop a run if it is live, then hide it."""
        return self._maybe("DELETE", _at("runs", name))

    def run_events(self, name: str) -> Iterator[Document]:
        """What happened to a run, in order."""
        return self.connection.pages(_at("runs", name) + "/events")

    def attempts(self, name: str) -> Iterator[Document]:
        """The attempts of a run, in order."""
        return self.connection.pages(_at("runs", name) + "/attempts")

    @contextmanager
    def logs(
        self, worker: str, *, attempt: int | None = None, tail: int | None = None, follow: bool = False
    ) -> Iterator[Iterator[bytes]]:
        """A worker's log as chunks of bytes, cut anywhere; `tail` lines to begin with, None: all."""
        parts = split_worker_name(worker)
        if parts is None:
            raise ApiError(
                404, "not-found", f"{worker!r} is not a worker's name; workers are RUN-RANK, such as {worker}-0"
            )
        path = f"{_at('runs', parts[0])}/logs/{_segment(canonical(worker))}"
        params = {"attempt": attempt, "tail": tail, "follow": "true" if follow else None}
        with self.connection.stream(path, params, endless=follow) as response:
            yield response.iter_bytes()

    # Events of the workspace

    def events(self) -> Iterator[Document]:
        """What happened in the workspace, in order."""
        return self.connection.pages("/events")

    def newest_event(self) -> int:
        """The id of the workspace's newest event, 0 when there is none."""
        low, high = 0, None
        while True:
            # Pages are oldest first: ids are doubled, then halved, so that a long history is not read through.
            cursor = 2 * low if high is None else max(low, (low + high) // 2)
            page = self.connection.call("GET", "/events", params={"limit": PAGE, "cursor": cursor})
            if page["items"]:
                low = int(page["items"][-1]["id"])
                if not page.get("next_cursor"):
                    return low
            elif cursor == low:
                return low
            else:
                high = cursor

    @contextmanager
    def follow_events(self, after: int | None = None) -> Iterator[Iterator[Document]]:
        """The workspace's events as they happen, from now on or after the event with this id."""
        with self.connection.stream("/events", {"follow": 1, "cursor": after}) as response:
            yield _server_sent(response.iter_lines())

    # Templates

    def templates(self) -> Iterator[Document]:
        """The workspace's templates."""
        return self.connection.pages("/templates")

    def template(self, name: str) -> Document:
        """One template."""
        return self._one("GET", _at("templates", name))

    def save_template(self, name: str, specification: Json) -> Document | None:
        """Create or replace a template."""
        return self._maybe("PUT", _at("templates", name), body=specification)

    def delete_template(self, name: str) -> None:
        """Remove a template."""
        self._maybe("DELETE", _at("templates", name))

    def run_template(
        self,
        template: str,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        changes: dict[str, Json] | None = None,
        idempotency_key: str | None = None,
    ) -> Document:
        """Submit a template under a new name; `changes` maps dotted paths to values."""
        body: Document = {"name": name}
        if labels:
            body["labels"] = labels
        if changes:
            body["set"] = changes
        return self._post(f"{_at('templates', template)}:run", body, key=idempotency_key)

    # Machines and their network

    def machines(self, cluster: str | None = None) -> Iterator[Document]:
        """The machines of a cluster, the workspace's own unless another is named."""
        return self.connection.pages("/machines", {"cluster": cluster})

    def machine(self, name: str, cluster: str | None = None) -> Document:
        """One machine."""
        return self._one("GET", _at("machines", name), params={"cluster": cluster})

    def machine_order(
        self, name: str, order: str, reason: str | None = None, cluster: str | None = None
    ) -> Document | None:
        """`drain`, `cordon` or `return` a machine."""
        body = {"reason": reason} if reason else None
        path = f"{_at('machines', name)}:{order}"
        return self._maybe("POST", path, body=body, params={"cluster": cluster}, repeatable=True)

    def topology(self, cluster: str | None = None) -> Document:
        """The network as a tree, with who holds what."""
        return self._one("GET", "/topology", params={"cluster": cluster})

    def findings(self) -> Json:
        """Faults found in the network."""
        return self.connection.call("GET", "/topology/findings")

    def snapshot(self, cluster: str | None = None) -> Document:
        """What the scheduler of a cluster would decide on now; for admins."""
        return self._one("GET", "/snapshot", params={"cluster": cluster})

    def clusters(self) -> Iterator[Document]:
        """The clusters runs can be placed on."""
        return self.connection.pages("/clusters")

    def shares(self, cluster: str | None = None) -> Document:
        """How the workspaces of a cluster stand: quotas, shares and use."""
        return self._one("GET", "/shares", params={"cluster": cluster})

    def set_share(self, due: Document, cluster: str | None = None) -> Document:
        """Set this workspace's `gpu_quota` and `share`; None takes one away, and what is absent stays."""
        return self._one("PATCH", "/share", body=due, params={"cluster": cluster}, repeatable=True)

    # What runs use

    def drives(self) -> Iterator[Document]:
        """The workspace's drives."""
        return self.connection.pages("/drives")

    def save_drive(self, name: str, kind: str, path: str | None = None) -> Document | None:
        """Create or replace a drive of kind `machine` or `shared`."""
        body = {"kind": kind, "path": path} if path else {"kind": kind}
        return self._maybe("PUT", _at("drives", name), body=body)

    def delete_drive(self, name: str) -> None:
        """Remove a drive; its files stay."""
        self._maybe("DELETE", _at("drives", name))

    def secrets(self) -> Iterator[Document]:
        """The names of the workspace's secrets."""
        return self.connection.pages("/secrets")

    def save_secret(self, name: str, value: str) -> None:
        """Create or replace a secret."""
        self._maybe("PUT", f"/secrets/{_segment(name)}", body={"value": value})

    def delete_secret(self, name: str) -> None:
        """Remove a secret."""
        self._maybe("DELETE", f"/secrets/{_segment(name)}")

    def tokens(self) -> Iterator[Document]:
        """The workspace's tokens, without their text."""
        return self.connection.pages("/tokens")

    def create_token(
        self, name: str, role: str, cluster: str | None = None, expires_in_days: int | None = None
    ) -> Document:
        """A new token; its text is in this answer and nowhere else."""
        body: Document = {"name": name, "role": role, "cluster": cluster, "expires_in_days": expires_in_days}
        return self._one("POST", "/tokens", body=body)

    def revoke_token(self, token: str) -> None:
        """End a token by its id."""
        self._maybe("DELETE", f"/tokens/{_segment(token)}", repeatable=True)

    def _post(self, path: str, body: Json, key: str | None) -> Document:
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return self._one("POST", path, body=body, headers=headers, repeatable=True)

    def _one(self, method: str, path: str, **options: Any) -> Document:
        answer = self.connection.call(method, path, **options)
        if not isinstance(answer, dict):
            raise ApiError(200, "not-json", f"{method} {path} was not answered with an object")
        return answer

    def _maybe(self, method: str, path: str, **options: Any) -> Document | None:
        answer = self.connection.call(method, path, **options)
        return answer if isinstance(answer, dict) else None


def _at(kind: str, name: str) -> str:
    return f"/{kind}/{_segment(canonical(name))}"


def _segment(name: str) -> str:
    # The server takes a quoted slash for one of the path, and the path is tidied of dots: another thing would answer.
    if "/" in name or name in ("", ".", ".."):
        raise ApiError(404, "not-found", f"{name!r} is not a name")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise Unsendable(NOT_TEXT) from error


def _server_sent(lines: Iterator[str]) -> Iterator[Document]:
    data: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            text, data = "\n".join(data), []
            try:
                document = json.loads(text)
            except ValueError:
                continue
            if isinstance(document, dict):
                yield document
