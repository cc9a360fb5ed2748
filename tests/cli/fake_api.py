"""A small real HTTP server that answers as the API does, with a state that tests arrange and inspect."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BASE = "/api/o/acme/w/vision"
TOKEN = "ast_1_good"
EVENT = {"id": 1, "at": "2026-01-02T03:04:05Z", "kind": "submitted", "run": "a", "actor": "ann", "message": "submitted"}
Answer = tuple[int, Any]


class Broken(bytes):
    """An answer that ends before its end."""


def run_document(name: str, state: str = "Pending", reason: str = "Waiting for the scheduler", **more: Any) -> Any:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {}},
        "spec": {"task_template": {"command": "bash", "env": {"HF_KEY": "hunter2"}, "args": ["--key=hunter2"]}},
        "cluster": "lab-a",
        "state": state,
        "reason": reason,
        "network": None,
        "attempt": 1,
        "restarts": {"budget": 10, "left": 10, "next_earned_at": None},
        "workers": [],
        "held": False,
        "submitted_at": "2026-01-02T03:04:05Z",
        **more,
    }


class FakeApi:
    """Answers by `"METHOD /path"` below the base; a callable answer is called with the request's record."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | bytes | Callable[[dict[str, Any]], Answer | bytes]] = {}
        self.requests: list[dict[str, Any]] = []
        self.drop_next = 0
        self.origin = ""

    @property
    def base(self) -> str:
        return self.origin + BASE

    def on(self, call: str, answer: Any, status: int = 200) -> None:
        self.answers[call] = answer if callable(answer) or isinstance(answer, bytes) else (status, answer)

    def items(self, call: str, items: list[Any]) -> None:
        self.on(call, {"items": items, "next_cursor": None})

    def refuse(self, call: str, status: int, code: str, detail: str, faults: Any = None) -> None:
        self.on(call, {"status": status, "code": code, "detail": detail, "faults": faults}, status)

    def calls(self, method: str) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["method"] == method]

    def answer(self, request: dict[str, Any]) -> Answer | bytes:
        if request["authorization"] != f"Bearer {TOKEN}":
            return 401, {"code": "not-signed-in", "detail": "The token is unknown, expired or revoked."}
        found = self.answers.get(f"{request['method']} {request['path']}")
        if found is None:
            return 404, {"code": "not-found", "detail": f"There is nothing at {request['path']}."}
        return found(request) if callable(found) else found


@contextmanager
def serving() -> Iterator[FakeApi]:
    api = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            parts = urlsplit(self.path)
            request = {
                "method": self.command,
                "path": unquote(parts.path.removeprefix(BASE)),
                "query": parse_qs(parts.query),
                "authorization": self.headers.get("Authorization"),
                "key": self.headers.get("Idempotency-Key"),
                "body": json.loads(body) if body else None,
            }
            api.requests.append(request)
            if api.drop_next:
                api.drop_next -= 1
                self.close_connection = True
                return
            answer = api.answer(request)
            if isinstance(answer, bytes):
                self._send(200, "application/octet-stream", answer)
            else:
                status, document = answer
                data = b"" if document is None else json.dumps(document).encode()
                self._send(status, "application/json", data)

        def _send(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data) + isinstance(data, Broken)))
            self.end_headers()
            try:
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
            if isinstance(data, Broken):
                self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.origin = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
