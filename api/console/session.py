"""Who uses the console: a user's token, sealed in a cookie that no script can read and no address ever holds."""

import base64
import binascii
import json
import time

from fastapi.security import HTTPAuthorizationCredentials
from sqlalchemy import select
from starlette.requests import HTTPConnection

from api.auth import Role, Scope, needs, signed_in
from api.state import AppState
from astraeus.ledger import tenancy
from astraeus.ledger.cipher import CannotOpen, Cipher
from astraeus.ledger.tables import workspace
from astraeus.ledger.tenancy import Caller
from astraeus.model.errors import NotAllowed, NotSignedIn

COOKIE = "astraeus_session"
SESSION_SECONDS = 7 * 86_400
SEALED_FOR = b"console session"


def seal(cipher: Cipher, token: str) -> str:
    """The cookie's value for a token."""
    content = json.dumps({"token": token, "at": int(time.time())}).encode()
    return base64.urlsafe_b64encode(cipher.seal(content, SEALED_FOR)).decode()


def unseal(cipher: Cipher, value: str) -> str | None:
    """The token in a cookie's value; None when it is not one of ours, or too old."""
    try:
        content = json.loads(cipher.open(base64.urlsafe_b64decode(value), SEALED_FOR))
        fresh = time.time() - content["at"] < SESSION_SECONDS
    except (CannotOpen, binascii.Error, ValueError, KeyError, TypeError):
        return None
    return str(content["token"]) if fresh else None


def token_of(state: AppState, connection: HTTPConnection) -> str | None:
    """The token of the session that a request belongs to."""
    return unseal(state.cipher, connection.cookies.get(COOKIE, ""))


async def caller_of(state: AppState, token: str | None) -> Caller:
    """The user behind a token. Raises `NotSignedIn`, and `NotAllowed` for a machine's token."""
    if token is None:
        raise NotSignedIn("Sign in with a token of the workspace.")
    caller = await signed_in(state, HTTPAuthorizationCredentials(scheme="Bearer", credentials=token))
    if caller.role == "machine":
        raise NotAllowed("A machine's token cannot be used here; sign in with a token of the role viewer or above.")
    return caller


async def admit(state: AppState, token: str | None, org: str, name: str, role: Role = "viewer") -> Scope:
    """The caller in a workspace, asked anew each time, since tokens end. Raises what REST would answer."""
    return await needs(role)(state, await caller_of(state, token), org, name)


async def home(state: AppState, caller: Caller) -> str | None:
    """Where a caller begins: the runs of the token's workspace, or of the first one for a token of them all."""
    async with state.ledger.reading() as tx:
        if caller.workspace_id is not None:
            found = await tenancy.get_workspace(tx, caller.workspace_id)
            return f"/o/{found.organisation}/w/{found.name}/runs"
        query = select(workspace.c.organisation, workspace.c.name).order_by(*workspace.c["organisation", "name"])
        first = (await tx.conn.execute(query.limit(1))).one_or_none()
    return f"/o/{first.organisation}/w/{first.name}/runs" if first else None
