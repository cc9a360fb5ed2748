"""Drives, secrets and tokens."""

import re
from typing import Any

from api.auth import RANK, Role, Scope
from api.console.view import Action, Do, Load, Params, Values, View, model, of_workspace, seconds
from api.services import belongings, fleet
from api.services.belongings import SECRET_NAME, DriveInput, SecretInput, TokenInput
from astraeus.model.errors import Invalid, NotAllowed


async def load_drives(scope: Scope, params: Params) -> Values:
    """All drives."""
    found = (await belongings.drives(scope)).items
    return {"rows": [one.model_dump() | {"created_at": seconds(one.created_at)} for one in found]}


async def _put_drive(scope: Scope, params: Params, values: Values) -> Any:
    order = model(DriveInput, {"kind": values.get("kind") or "machine", "path": values.get("path") or None})
    return (await belongings.put_drive(scope, str(values.get("name") or ""), order)).name


async def _delete_drive(scope: Scope, params: Params, values: Values) -> Any:
    await belongings.delete_drive(scope, str(values.get("name")))


async def load_secrets(scope: Scope, params: Params) -> Values:
    """The names of all secrets; no page ever holds a value."""
    return {"rows": [one.model_dump() for one in (await belongings.secrets(scope)).items]}


async def _put_secret(scope: Scope, params: Params, values: Values) -> Any:
    name = str(values.get("name") or "").strip()
    if not re.fullmatch(SECRET_NAME, name):
        raise Invalid("A secret's name has letters, digits and '_', and does not begin with a digit.")
    return (await belongings.put_secret(scope, name, model(SecretInput, {"value": values.get("value")}))).name


async def _delete_secret(scope: Scope, params: Params, values: Values) -> Any:
    await belongings.delete_secret(scope, str(values.get("name")))


async def load_tokens(scope: Scope, params: Params) -> Values:
    """All tokens, without their text; for admins."""
    if RANK[scope.caller.role] < RANK["admin"]:
        raise NotAllowed(f"Tokens need the role admin; the token {scope.caller.name!r} has {scope.caller.role}.")
    times = ("created_at", "expires_at", "revoked_at", "last_used_at")
    found = (await belongings.tokens(scope)).items
    return {
        "rows": [one.model_dump() | {key: seconds(getattr(one, key)) for key in times} for one in found],
        "clusters": [one.name for one in (await fleet.clusters(scope)).items],
    }


async def _create_token(scope: Scope, params: Params, values: Values) -> Any:
    days = str(values.get("days") or "")
    order = {
        "name": str(values.get("name") or ""),
        "role": values.get("role") or "editor",
        "cluster": values.get("cluster") or None,
        "expires_in_days": int(days) if days.isascii() and days.isdigit() and len(days) < 9 else None,
    }
    made = await belongings.create_token(scope, model(TokenInput, order))
    return {"token": made.token, "name": made.name}


async def _revoke_token(scope: Scope, params: Params, values: Values) -> Any:
    await belongings.revoke_token(scope, str(values.get("id")))


def _view(kind: str, load: Load, role: Role, **actions: Do) -> View:
    """The page of all that a workspace keeps of a kind, with what whoever has the role may do there."""
    of = {name: Action(role, do) for name, do in actions.items()}
    return View(f"{kind}s", f"{kind.title()}s", load, of_workspace(kind), of)


DRIVES = _view("drive", load_drives, "editor", put=_put_drive, delete=_delete_drive)
SECRETS = _view("secret", load_secrets, "editor", put=_put_secret, delete=_delete_secret)
TOKENS = _view("token", load_tokens, "admin", create=_create_token, revoke=_revoke_token)
