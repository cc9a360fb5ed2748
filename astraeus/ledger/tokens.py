"""Tokens: who calls, and what they may. Only the hash of a token is kept."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from sqlalchemy import or_, select, update

from astraeus.ledger.core import Tx
from astraeus.ledger.tables import token
from astraeus.model.errors import Invalid

PLAINTEXT = re.compile(r"ast_([0-9a-f]{16})_[0-9a-f]{48}")
NOTE_SECONDS = 60.0
ROLES = {"user": frozenset({"viewer", "editor", "admin"}), "machine": frozenset({"machine"})}


@dataclass(frozen=True)
class Caller:
    """Who a token speaks for; a workspace or cluster of None is not limited to one.

    `unnoted` says that `last_used_at` is old: whoever authenticated the call calls `note_use` for `token`.
    """

    name: str
    role: str
    workspace_id: str | None
    cluster: str | None
    kind: str
    token: str = ""
    unnoted: bool = False


@dataclass(frozen=True)
class TokenView:
    """A token without its text. Times are seconds since the epoch."""

    id: str
    name: str
    kind: str
    role: str
    workspace_id: str | None
    cluster: str | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None


VIEW = (
    token.c.id,
    token.c.name,
    token.c.kind,
    token.c.role,
    token.c.workspace.label("workspace_id"),
    token.c.cluster,
    token.c.created_at,
    token.c.expires_at,
    token.c.revoked_at,
    token.c.last_used_at,
)


async def create_token(
    tx: Tx,
    *,
    name: str,
    kind: str,
    role: str,
    workspace_id: str | None = None,
    cluster: str | None = None,
    expires_at: float | None = None,
) -> tuple[TokenView, str]:
    """A new token and its text, which cannot be read again. Raises Invalid when the role does not fit the kind."""
    if role not in ROLES.get(kind, ()):
        raise Invalid(f"A token of kind {kind!r} cannot have the role {role!r}")
    id = secrets.token_hex(8)
    plaintext = f"ast_{id}_{secrets.token_hex(24)}"
    view = TokenView(id, name, kind, role, workspace_id, cluster, tx.now, expires_at, None, None)
    values = {column.name: getattr(view, column.name) for column in token.c if hasattr(view, column.name)}
    await tx.conn.execute(token.insert().values(**values, workspace=workspace_id, hash=_hash(plaintext)))
    tx.announce("token", workspace_id or "")
    return view, plaintext


async def authenticate(tx: Tx, plaintext: str) -> Caller | None:
    """The caller behind a token, None when it is unknown, expired or revoked. Writes nothing."""
    parsed = PLAINTEXT.fullmatch(plaintext)
    if parsed is None:
        return None
    found = (await tx.conn.execute(select(*VIEW, token.c.hash).where(token.c.id == parsed[1]))).one_or_none()
    if found is None or not hmac.compare_digest(found.hash, _hash(plaintext)):
        return None
    if found.revoked_at is not None or (found.expires_at is not None and found.expires_at <= tx.now):
        return None
    unnoted = found.last_used_at is None or found.last_used_at <= tx.now - NOTE_SECONDS
    return Caller(found.name, found.role, found.workspace_id, found.cluster, found.kind, found.id, unnoted)


async def note_use(tx: Tx, id: str) -> None:
    """Remember that a token is in use; at most one write a minute."""
    old = or_(token.c.last_used_at.is_(None), token.c.last_used_at <= tx.now - NOTE_SECONDS)
    await tx.conn.execute(update(token).where(token.c.id == id, old).values(last_used_at=tx.now))


async def tokens(tx: Tx, workspace_id: str) -> list[TokenView]:
    """The workspace's tokens, oldest first, revoked ones included."""
    query = select(*VIEW).where(token.c.workspace == workspace_id).order_by(token.c.created_at, token.c.id)
    return [TokenView(**row) for row in (await tx.conn.execute(query)).mappings()]


async def revoke_token(tx: Tx, workspace_id: str, id: str) -> bool:
    """End a token of the workspace for good; whether there is one with this id. The first time is kept."""
    here = (token.c.id == id) & (token.c.workspace == workspace_id)
    ended = update(token).where(here, token.c.revoked_at.is_(None)).values(revoked_at=tx.now)
    if (await tx.conn.execute(ended)).rowcount:
        tx.announce("token", workspace_id)
        return True
    return (await tx.conn.execute(select(token.c.id).where(here))).one_or_none() is not None


def _hash(plaintext: str) -> str:
    return hashlib.sha256(plaintext.encode()).hexdigest()
