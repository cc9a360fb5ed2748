"""What a workspace owns besides runs: drives, secrets and tokens."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.auth import Scope
from api.services.runs import known_cluster
from api.services.templates import good_name
from astraeus.ledger import tenancy
from astraeus.ledger.tenancy import DriveRow, TokenView
from astraeus.model.errors import Conflict, NotFound
from astraeus.model.faults import BadSpec, Fault
from astraeus.model.names import canonical, name_fault
from astraeus.model.spec import AbsolutePath

DAY = 86_400.0
TOKEN_NAME = r"^[A-Za-z0-9]([A-Za-z0-9._@-]{0,61}[A-Za-z0-9])?$"
SECRET_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,255}$"


class Input(BaseModel):
    """A body; unknown fields are faults."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DriveInput(Input):
    """A drive: a directory on each machine, or one shared by all of the cluster; without `path` the agent keeps one."""

    kind: Literal["machine", "shared"] = "machine"
    path: AbsolutePath | None = None


class DriveView(BaseModel):
    """A drive of the workspace."""

    name: str
    kind: Literal["machine", "shared"]
    path: str | None = None
    created_at: datetime


class DrivePage(BaseModel):
    """All drives."""

    items: list[DriveView]
    next_cursor: str | None = None


class SecretInput(Input):
    """A secret's value; it is sealed at once and never shown again."""

    value: Annotated[str, Field(max_length=64 * 1024, pattern=r"^[^\x00]*$")]


class SecretView(BaseModel):
    """A secret's name; values are never shown."""

    name: str


class SecretPage(BaseModel):
    """All secrets, by name."""

    items: list[SecretView]
    next_cursor: str | None = None


class TokenInput(Input):
    """A token to make. A machine's token is for a cluster, the workspace's own unless another is named."""

    name: Annotated[str, Field(pattern=TOKEN_NAME)]
    role: Literal["viewer", "editor", "admin", "machine"] = "editor"
    cluster: Annotated[str, Field(max_length=63, pattern=r"^[^\x00]*$")] | None = None
    expires_in_days: Annotated[int, Field(ge=1, le=3650)] | None = None


class TokenRecord(BaseModel):
    """A token without its text."""

    id: str
    name: str
    kind: str
    role: str
    cluster: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


class NewToken(TokenRecord):
    """A new token; `token` is its text, shown this once."""

    token: str


class TokenPage(BaseModel):
    """All tokens."""

    items: list[TokenRecord]
    next_cursor: str | None = None


async def drives(scope: Scope) -> DrivePage:
    """All drives, by name."""
    async with scope.state.ledger.reading() as tx:
        return DrivePage(items=[_drive(row) for row in await tenancy.list_drives(tx, scope.workspace.id)])


async def drive(scope: Scope, name: str) -> DriveView:
    """One drive. Raises `NotFound`."""
    wanted = canonical(name)
    async with scope.state.ledger.reading() as tx:
        row = None if name_fault(wanted) else await tenancy.get_drive(tx, scope.workspace.id, wanted)
    if row is None:
        raise NotFound(f"There is no drive {wanted!r} in {scope.workspace.path}.")
    return _drive(row)


async def put_drive(scope: Scope, name: str, order: DriveInput) -> DriveView:
    """Make or replace a drive."""
    name = good_name(name)
    if order.path and ".." in order.path.split("/"):
        raise BadSpec([Fault("/path", "must not contain '..'; write the path it means")])
    async with scope.state.ledger.transaction() as tx:
        await tenancy.put_drive(tx, scope.workspace.id, name, order.kind, order.path)
    return await drive(scope, name)


async def delete_drive(scope: Scope, name: str) -> None:
    """Forget a drive; its files stay. Raises `NotFound`."""
    found = await drive(scope, name)
    async with scope.state.ledger.transaction() as tx:
        await tenancy.delete_drive(tx, scope.workspace.id, found.name)


async def secrets(scope: Scope) -> SecretPage:
    """The names of all secrets."""
    async with scope.state.ledger.reading() as tx:
        names = await tenancy.list_secrets(tx, scope.workspace.id)
    return SecretPage(items=[SecretView(name=name) for name in names])


async def put_secret(scope: Scope, name: str, order: SecretInput) -> SecretView:
    """Seal a value under a name."""
    state = scope.state
    async with state.ledger.transaction() as tx:
        await tenancy.put_secret(tx, state.cipher, scope.workspace.id, name, order.value, scope.caller.name)
    return SecretView(name=name)


async def delete_secret(scope: Scope, name: str) -> None:
    """Forget a secret. Raises `NotFound`."""
    async with scope.state.ledger.transaction() as tx:
        if name not in await tenancy.list_secrets(tx, scope.workspace.id):
            raise NotFound(f"There is no secret {name!r} in {scope.workspace.path}.")
        await tenancy.delete_secret(tx, scope.workspace.id, name)


async def tokens(scope: Scope) -> TokenPage:
    """All tokens of the workspace, without their text."""
    async with scope.state.ledger.reading() as tx:
        found = await tenancy.tokens(tx, scope.workspace.id)
    return TokenPage(items=[_token(view) for view in found])


async def create_token(scope: Scope, order: TokenInput) -> NewToken:
    """A new token with its text."""
    machine = order.role == "machine"
    if order.cluster is not None and not machine:
        raise Conflict(f"A cluster is only for the role machine, and the role is {order.role}; leave one of them out.")
    async with scope.state.ledger.transaction() as tx:
        view, plaintext = await tenancy.create_token(
            tx,
            name=order.name,
            kind="machine" if machine else "user",
            role=order.role,
            workspace_id=scope.workspace.id,
            cluster=await known_cluster(tx, scope, order.cluster) if machine else None,
            expires_at=tx.now + order.expires_in_days * DAY if order.expires_in_days else None,
        )
    return NewToken(**_token(view).model_dump(), token=plaintext)


async def revoke_token(scope: Scope, id: str) -> None:
    """End a token; by this process within this call, by others within seconds. Raises `NotFound`."""
    async with scope.state.ledger.transaction() as tx:
        if id not in {view.id for view in await tenancy.tokens(tx, scope.workspace.id)}:
            raise NotFound(f"There is no token with the id {id!r} in {scope.workspace.path}.")
        await tenancy.revoke_token(tx, scope.workspace.id, id)
    scope.state.tokens.forget()


def _drive(row: DriveRow) -> DriveView:
    return DriveView(name=row.name, kind=row.kind, path=row.path, created_at=_time(row.created_at))


def _token(view: TokenView) -> TokenRecord:
    return TokenRecord(
        id=view.id,
        name=view.name,
        kind=view.kind,
        role=view.role,
        cluster=view.cluster,
        created_at=_time(view.created_at),
        expires_at=_maybe(view.expires_at),
        revoked_at=_maybe(view.revoked_at),
        last_used_at=_maybe(view.last_used_at),
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _maybe(seconds: float | None) -> datetime | None:
    return None if seconds is None else _time(seconds)
