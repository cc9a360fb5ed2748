"""The console's place in the API's app. NiceGUI is loaded at the first page asked for, not when the API starts."""

import asyncio
import importlib
import re
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, URLPath
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.console import door, session
from api.state import AppState
from astraeus.model.errors import AstraeusError

PLACES = re.compile(r"/|/sign-in|/sign-out|/o/.*|/_nicegui.*|/favicon\.ico")
POSTS = re.compile(r"/sign-in|/sign-out|/_nicegui.*")
WORKSPACE = re.compile(r"/o/([^/]+)/w/([^/]+)/?")
LOG = re.compile(r"/o/([^/]+)/w/([^/]+)/runs/[^/]+/([^/]+)/logs/([^/]+)")
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""Nothing from elsewhere. Vue compiles templates in the browser, which is why scripts may be evaluated."""


class ConsoleRoute(BaseRoute):
    """Every path of the console, with the whole path handed on."""

    path_format = "console"

    def __init__(self, console: "Console") -> None:
        self.console = console

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Pages and assets by GET, signing in and out and the sockets' fallback by POST as well."""
        if scope["type"] == "http":
            places = PLACES if scope["method"] in ("GET", "HEAD") else POSTS if scope["method"] == "POST" else None
            if places and places.fullmatch(scope["path"]):
                return Match.FULL, {"route": self}
        elif scope["type"] == "websocket" and scope["path"].startswith("/_nicegui_ws/"):
            return Match.FULL, {"route": self}
        return Match.NONE, {}

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """No route of the console has a name."""
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket."""
        await self.console(scope, receive, send)


class Console:
    """The console of one API process, as an ASGI app."""

    def __init__(self, state: AppState) -> None:
        self.state = state
        self.route = ConsoleRoute(self)
        self._loading = asyncio.Lock()
        self._running = AsyncExitStack()
        self._pages: ASGIApp | None = None

    async def close(self) -> None:
        """End the pages, if any was ever asked for."""
        await self._running.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket; a page or socket of another site is turned away."""
        if not self._from_here(Headers(scope=scope)):
            refused: ASGIApp = Response("This comes from another site.", 403)
            await (refused(scope, receive, send) if scope["type"] == "http" else send({"type": "websocket.close"}))
            return
        app: ASGIApp | None = None
        if scope["type"] == "http":
            app = await self._without_pages(Request(scope, receive))
        if app is None:
            scope = {**scope, "astraeus": self.state, "headers": _without_prefix(scope["headers"])}
            app = await self._with_pages()
        await app(scope, receive, _guarded(send))

    def _from_here(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return True
        return urlsplit(origin).netloc in (headers.get("host"), urlsplit(self.state.public_url).netloc)

    async def _without_pages(self, request: Request) -> Response | None:
        path = request.url.path
        if path == "/":
            return await door.front(self.state, request)
        if path == door.SIGN_IN:
            return await door.sign_in(self.state, request)
        if path == door.SIGN_OUT:
            return door.sign_out() if request.method == "POST" else RedirectResponse(door.SIGN_IN, 303)
        if not path.startswith("/o/"):
            return None
        if found := LOG.fullmatch(path):
            return await door.log(self.state, request, *found.groups())
        try:
            await session.caller_of(self.state, session.token_of(self.state, request))
        except AstraeusError as error:
            if not error.retryable:
                return door.to_sign_in(request)
        if found := WORKSPACE.fullmatch(path):
            return RedirectResponse(f"/o/{found[1]}/w/{found[2]}/runs", 303)
        return None

    async def _with_pages(self) -> ASGIApp:
        async with self._loading:
            if self._pages is None:
                # A second of importing, beside the requests of agents and clients rather than before them.
                site = await asyncio.to_thread(importlib.import_module, "api.console.site")
                self._pages = await self._running.enter_async_context(site.running())
        assert self._pages is not None
        return self._pages


def _without_prefix(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """NiceGUI writes this header into its pages, and anyone can send it."""
    return [(name, value) for name, value in headers if name != b"x-forwarded-prefix"]


def _guarded(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Referrer-Policy"] = "same-origin"
            if headers.get("content-type", "").startswith("text/html"):
                headers["Content-Security-Policy"] = POLICY
                headers["Cache-Control"] = "no-store"
        await send(message)

    return guarded
