"""A page in a browser: shows a view, again whenever the ledger says that it changed, and takes its actions."""

import asyncio
import logging
from collections.abc import Awaitable, Collection
from pathlib import Path
from typing import Any

from nicegui import ui
from nicegui.elements import codemirror
from nicegui.events import GenericEventArguments

from api.auth import Scope
from api.console import session
from api.console.view import Params, Values, View
from api.state import AppState
from astraeus.ledger.changes import Listener
from astraeus.model.errors import AstraeusError
from astraeus.model.faults import BadSpec

log = logging.getLogger(__name__)

WEB = Path(__file__).parent / "web"
ASKED_AGAIN_SECONDS = 20.0
"""How long a page without news is left alone; a token that has expired is noticed by then."""
PAUSE_SECONDS = 0.25
PAUSE_MOST_SECONDS = 5.0
SHARE = 8
"""A page that changes pauses this many times as long as it took to load, so that many of them leave room for agents."""

EDITOR = codemirror.__name__
"""Importing it is what has NiceGUI serve the editor's library."""


class Screen(ui.element, component="web/screen.js", esm={"astraeus-console": "web"}):
    """All of a page's content is drawn in the browser from `frame` and `shown`: user's words are text there."""

    def __init__(self, state: AppState, token: str | None, view: View, params: Params) -> None:
        super().__init__()
        self.state, self.token, self.view, self.params = state, token, view, params
        self._news = asyncio.Event()
        self._asked = asyncio.Event()
        self._last: Values | None = None
        self._props["page"] = view.name
        self._props["frame"] = {"org": params["org"], "workspace": params["workspace"]}
        self._props["shown"] = {"status": "loading"}
        self.on("act", self._act)

    async def follow(self) -> None:
        """Show the view for as long as the page is open."""
        while True:
            self._news.clear()
            self._asked.clear()
            try:
                scope = await session.admit(self.state, self.token, self.params["org"], self.params["workspace"])
                took = await self._follow_once(scope)
            except AstraeusError as error:
                self._show({"status": error.code, "message": error.message, "retryable": error.retryable})
                await _at_most(self._news.wait(), ASKED_AGAIN_SECONDS / 4)
                took = 0.0
            except Exception:
                log.exception("the page %s cannot be shown", self.view.name)
                self._show({"status": "internal", "message": "This is a fault of the server; its log says more."})
                await _at_most(self._news.wait(), ASKED_AGAIN_SECONDS)
                took = 0.0
            # Its user waits for no pause.
            await _at_most(self._asked.wait(), min(max(PAUSE_SECONDS, SHARE * took), PAUSE_MOST_SECONDS))

    async def _follow_once(self, scope: Scope) -> float:
        """Load and show, then wait for news; listening begins before loading, so that none is missed."""
        # A token that was revoked may be the page's own.
        topics = (*self.view.topics(scope, self.params), f"token:{scope.workspace.id}")
        clock = asyncio.get_running_loop().time
        with self.state.hub.listen(*(t.partition(":")[0] if t.endswith("/") else t for t in topics)) as listener:
            began = clock()
            shown: Values = {"status": "ready", **await self.view.load(scope, self.params)}
            took = clock() - began
            self._show(shown, scope)
            hearing = asyncio.create_task(self._hear(listener, topics))
            try:
                await _at_most(self._news.wait(), ASKED_AGAIN_SECONDS)
            finally:
                hearing.cancel()
        return took

    async def _hear(self, listener: Listener, topics: Collection[str]) -> None:
        beginnings = tuple(topic for topic in topics if topic.endswith("/"))
        while not self.state.hub.closed:
            for kind, key in await listener.wait(None):
                if not key or f"{kind}:{key}" in topics or kind in topics or f"{kind}:{key}".startswith(beginnings):
                    self._news.set()

    def _show(self, shown: Values, scope: Scope | None = None) -> None:
        if shown == self._last:
            return
        self._last = shown
        if scope is not None:
            self._props["frame"] = {
                "org": scope.workspace.organisation,
                "workspace": scope.workspace.name,
                "user": scope.caller.name,
                "role": scope.caller.role,
                "temporal": self.state.temporal_ui,
            }
        self._props["shown"] = shown
        self.update()

    async def _act(self, event: GenericEventArguments) -> None:
        """Do what the page asked for, for whoever is signed in now, and answer."""
        asked = event.args
        answer: Values
        try:
            answer = {"value": await self._do(str(asked["name"]), dict(asked.get("values") or {}))}
        except BadSpec as error:
            faults = [{"pointer": fault.pointer, "message": fault.message} for fault in error.faults]
            answer = {"error": error.message, "faults": faults}
        except AstraeusError as error:
            answer = {"error": error.message, "code": error.code}
        except Exception:
            log.exception("an action of the console failed")
            answer = {"error": "This is a fault of the server; its log says more."}
        self._asked.set()
        self._news.set()
        self.run_method("answered", asked.get("id"), answer)

    async def _do(self, name: str, values: Values) -> Any:
        if name == "look":
            await session.admit(self.state, self.token, self.params["org"], self.params["workspace"])
            fixed = {key: self.params[key] for key in self.params.get("fixed", ())}
            self.params = {**self.params, **values, **fixed}
            return None
        action = self.view.actions[name]
        scope = await session.admit(self.state, self.token, self.params["org"], self.params["workspace"], action.role)
        return await action.do(scope, self.params, values)


async def _at_most(waiting: Awaitable[Any], limit: float) -> None:
    try:
        await asyncio.wait_for(waiting, limit)
    except TimeoutError:
        return
