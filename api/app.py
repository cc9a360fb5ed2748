"""Puts the API together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from api import errors, openapi
from api.console.mount import Console
from api.middleware import Observed
from api.routes import agent, belongings, events, fleet, health, logs, runs, shares, snapshot, templates, topology
from api.state import AppState

DISTRIBUTION = "astraeus-orchestrator"
DESCRIPTION = "Runs large distributed training: whole gangs, tight placement, recovery by itself."
ROUTERS = (runs, logs, events, templates, fleet, topology, snapshot, shares, belongings, agent, health)


def create_app(state: AppState) -> FastAPI:
    """The ASGI app over `state`, whose hub is started already. Its lifespan ends the work left in the background."""
    console = Console(state)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await console.close()
        await state.background.close()

    app = FastAPI(
        title="Astraeus",
        version=_version(),
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.astraeus = state
    app.state.methods_at = lambda scope: methods_at(app.router.routes, scope)
    for module in ROUTERS:
        app.include_router(module.router)
    app.router.routes.append(console.route)
    errors.install(app)
    app.add_middleware(Observed, metrics=state.metrics)
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    return app


def methods_at(routes: list[BaseRoute], scope: Scope) -> list[str]:
    """Every method that some route takes at the path of `scope`."""
    found: set[str] = set()
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        asked = {**scope, "method": method}
        if any(route.matches(asked)[0] is Match.FULL for route in routes):
            found.add(method)
    return sorted(found)


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"
