"""Around every request: an id, a line in the log, a count, and an answer even to the unexpected."""

import asyncio
import logging
import math
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import answer
from api.metrics import Metrics

log = logging.getLogger("astraeus.api")

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
DRAINED_MOST, DRAIN_SECONDS = 1024 * 1024, 2.0
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
QUIET = ("/healthz", "/readyz", "/metrics", "/agent/v1/sync")


class Observed:
    """ASGI middleware: `X-Request-Id` in and out, metrics by route, and a problem document for what nobody caught."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        began, status, unread = time.monotonic(), 0, _has_body(Headers(scope=scope))
        size = _declared_size(Headers(scope=scope))

        async def take() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                if unread and status >= 400 and size <= DRAINED_MOST:
                    # Closing on a body still under way resets the connection, and the answer is lost with it.
                    await _drain(take)
                if unread and status >= 400:
                    # Only this stops a sender whose body nobody will read.
                    headers["Connection"] = "close"
            await send(message)

        try:
            await self.app(scope, take, observe)
        except Exception as error:
            if status:
                log.info("answer broken off: %s (request %s)", error, request_id)
                raise
            await answer(error)(scope, take, observe)
        finally:
            self._count(scope, status or 499, time.monotonic() - began, request_id)

    def _count(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path_format", "none")
        self.metrics.served(scope["method"] if scope["method"] in METHODS else "other", route, status, seconds)
        level = logging.DEBUG if scope["path"] in QUIET else logging.INFO
        text = "%s %s %d %.1f ms (request %s)"
        log.log(level, text, scope["method"], scope["path"], status, seconds * 1000, request_id)


async def _drain(take: Receive) -> None:
    """Take what is left of a small body, for a moment."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while (message := await take())["type"] == "http.request" and message.get("more_body", False):
                pass
    except TimeoutError:
        pass


def _declared_size(headers: Headers) -> float:
    """The body's length in bytes as the client says it; infinite for one sent in chunks."""
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 16 else math.inf


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
