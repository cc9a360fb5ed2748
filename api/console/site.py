"""The pages as NiceGUI serves them. Loaded at the first page asked for; see `mount`."""

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.middleware.gzip import GZipMiddleware
from nicegui import background_tasks, core, ui
from starlette.types import ASGIApp

from api.console import session
from api.console.live import WEB, Screen
from api.console.pages import belongings, events, machines, new, queue, run, runs, templates, topology
from api.console.view import View
from api.state import AppState

PAGES: dict[str, View] = {
    "/runs": runs.VIEW,
    "/runs/new": new.VIEW,
    "/runs/{cluster}/{run}": run.VIEW,
    "/topology": topology.VIEW,
    "/machines": machines.VIEW,
    "/machines/{cluster}/{machine}": machines.ONE,
    "/queue": queue.VIEW,
    "/events": events.VIEW,
    "/templates": templates.VIEW,
    "/drives": belongings.DRIVES,
    "/secrets": belongings.SECRETS,
    "/tokens": belongings.TOKENS,
}
RECONNECT_SECONDS = 30.0
COMPRESSION = 4
FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1d5fd1"/>'
    '<path d="M16 5 27 27h-5l-6-13-6 13H5z" fill="#fff"/></svg>'
)


@asynccontextmanager
async def running() -> AsyncIterator[ASGIApp]:
    """The pages' app, for as long as the API runs."""
    app = _app()
    async with app.router.lifespan_context(app):
        yield core.app


@functools.cache
def _app() -> FastAPI:
    """NiceGUI with every page; once per process, since NiceGUI has one app per process."""
    app = FastAPI(openapi_url=None)
    core.app.add_static_files("/_nicegui_console", WEB)
    for path, view in PAGES.items():
        _add(path, view)
    ui.run_with(
        app,
        title="Astraeus",
        favicon=FAVICON,
        language="en-US",
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=RECONNECT_SECONDS,
        show_welcome_message=False,
        gzip_middleware_factory=lambda inner: GZipMiddleware(inner, minimum_size=1000, compresslevel=COMPRESSION),
    )
    return app


def _add(path: str, view: View) -> None:
    def page(request: Request) -> None:
        state: AppState = request.scope["astraeus"]
        params: dict[str, Any] = {**request.query_params, **request.path_params}
        params["fixed"] = tuple(request.path_params)
        ui.add_head_html('<link rel="stylesheet" href="/_nicegui_console/console.css">')
        ui.query(".nicegui-content").classes("console")
        screen = Screen(state, session.token_of(state, request), view, params)
        following = background_tasks.create(screen.follow(), name=f"page {view.name}")
        ui.context.client.on_delete(lambda: following.cancel())

    ui.page(f"/o/{{org}}/w/{{workspace}}{path}", title=f"{view.title} – Astraeus")(page)
