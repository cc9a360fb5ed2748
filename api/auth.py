"""Bearer tokens: who calls, in which workspace, with which role."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.state import AppState
from astraeus.ledger.tenancy import Caller, Workspace, find_workspace, note_use
from astraeus.model.errors import NotAllowed, NotFound, NotSignedIn
from astraeus.model.names import canonical, name_fault

Role = Literal["viewer", "editor", "admin"]
RANK = {"viewer": 1, "editor": 2, "admin": 3}

bearer = HTTPBearer(auto_error=False, scheme_name="token", description="A token made with POST …/tokens.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


@dataclass(frozen=True)
class Scope:
    """A signed-in caller in a workspace."""

    state: AppState
    caller: Caller
    workspace: Workspace


def app_state(request: Request) -> AppState:
    """The process's state."""
    state: AppState = request.app.state.astraeus
    return state


State = Annotated[AppState, Depends(app_state)]


async def signed_in(state: State, credentials: Credentials) -> Caller:
    """The caller behind the bearer token."""
    if credentials is None:
        raise NotSignedIn("Send a token: 'Authorization: Bearer <token>'.")
    caller = await state.tokens.caller(state.ledger, credentials.credentials)
    if caller is None:
        raise NotSignedIn("The token is unknown, expired or revoked; ask an admin of the workspace for a new one.")
    if caller.unnoted:
        state.background.start(_note_use(state, caller), "noting the use of a token")
    return caller


async def still_good(scope: Scope, token: str) -> bool:
    """Whether a long answer may go on: two seconds after its token was revoked it may not."""
    return await scope.state.tokens.caller(scope.state.ledger, token) is not None


async def _note_use(state: AppState, caller: Caller) -> None:
    async with state.ledger.transaction() as tx:
        await note_use(tx, caller.token)


SignedIn = Annotated[Caller, Depends(signed_in)]


def needs(role: Role) -> Callable[..., Awaitable[Scope]]:
    """A dependency: the caller has at least `role` in the workspace of the path."""

    async def scope(
        state: State,
        caller: SignedIn,
        org: Annotated[str, Path(description="The organisation.")],
        workspace: Annotated[str, Path(description="The workspace.")],
    ) -> Scope:
        if caller.role not in RANK:
            raise NotAllowed(f"This needs the role {role} in the workspace; a machine's token has none.")
        found = await _workspace(state, org, workspace)
        if found is None or caller.workspace_id not in (None, found.id):
            raise NotFound(f"There is no workspace {org}/{workspace}, or the token is not for it.")
        if RANK[caller.role] < RANK[role]:
            raise NotAllowed(f"This needs the role {role}; the token {caller.name!r} has the role {caller.role}.")
        return Scope(state, caller, found)

    return scope


async def _workspace(state: AppState, org: str, workspace: str) -> Workspace | None:
    org, workspace = canonical(org), canonical(workspace)
    if name_fault(org) or name_fault(workspace):
        return None
    async with state.ledger.reading() as tx:
        return await find_workspace(tx, org, workspace)


Viewer = Annotated[Scope, Depends(needs("viewer"))]
Editor = Annotated[Scope, Depends(needs("editor"))]
Admin = Annotated[Scope, Depends(needs("admin"))]


async def machine(caller: SignedIn) -> Caller:
    """The caller of a machine's token; no other token may speak for machines."""
    if caller.role != "machine":
        raise NotAllowed("This needs a machine's token; make one with POST …/tokens and the role machine.")
    return caller


Machine = Annotated[Caller, Depends(machine)]
