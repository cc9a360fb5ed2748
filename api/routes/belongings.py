"""`/drives`, `/secrets`, `/tokens`."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from api.auth import Admin, Editor, Viewer
from api.body import read_model
from api.openapi import WITH_BODY, WITH_TOKEN, body, problems
from api.routes.common import BASE, Name, NewName
from api.services import belongings
from api.services.belongings import (
    SECRET_NAME,
    DriveInput,
    DrivePage,
    DriveView,
    NewToken,
    SecretInput,
    SecretPage,
    SecretView,
    TokenInput,
    TokenPage,
)

router = APIRouter(prefix=BASE, tags=["drives, secrets, tokens"])

SecretName = Annotated[str, Path(pattern=SECRET_NAME, description="A name for an environment variable.")]


@router.get("/drives", responses=WITH_TOKEN, summary="All drives")
async def drives(scope: Viewer) -> DrivePage:
    """By name."""
    return await belongings.drives(scope)


@router.get("/drives/{name:segment}", responses=WITH_TOKEN, summary="One drive")
async def drive(scope: Viewer, name: Name) -> DriveView:
    """Its kind and directory."""
    return await belongings.drive(scope, name)


@router.put("/drives/{name:segment}", responses=WITH_BODY, openapi_extra=body(DriveInput), summary="Make a drive")
async def put_drive(request: Request, scope: Editor, name: NewName) -> DriveView:
    """Makes or replaces it; running work keeps what it has mounted."""
    return await belongings.put_drive(scope, name, await read_model(request, DriveInput))


@router.delete(
    "/drives/{name:segment}", status_code=204, responses=WITH_TOKEN, response_class=Response, summary="Forget a drive"
)
async def delete_drive(scope: Editor, name: Name) -> None:
    """Its files stay."""
    await belongings.delete_drive(scope, name)


@router.get("/secrets", responses=WITH_TOKEN, summary="The names of all secrets")
async def secrets(scope: Viewer) -> SecretPage:
    """Values are never shown."""
    return await belongings.secrets(scope)


@router.put("/secrets/{name:segment}", responses=WITH_BODY, openapi_extra=body(SecretInput), summary="Set a secret")
async def put_secret(request: Request, scope: Editor, name: SecretName) -> SecretView:
    """Workers started from now on find the new value."""
    return await belongings.put_secret(scope, name, await read_model(request, SecretInput))


@router.delete(
    "/secrets/{name:segment}", status_code=204, responses=WITH_TOKEN, response_class=Response, summary="Forget a secret"
)
async def delete_secret(scope: Editor, name: SecretName) -> None:
    """Running workers keep it."""
    await belongings.delete_secret(scope, name)


@router.get("/tokens", responses=WITH_TOKEN, summary="All tokens")
async def tokens(scope: Admin) -> TokenPage:
    """Without their text."""
    return await belongings.tokens(scope)


@router.post(
    "/tokens",
    status_code=201,
    responses=WITH_BODY | problems(409),
    openapi_extra=body(TokenInput),
    summary="Make a token",
)
async def create_token(request: Request, scope: Admin) -> NewToken:
    """Its text is in this answer and never again."""
    return await belongings.create_token(scope, await read_model(request, TokenInput))


@router.delete(
    "/tokens/{token_id:segment}", status_code=204, responses=WITH_TOKEN, response_class=Response, summary="Revoke it"
)
async def revoke_token(scope: Admin, token_id: Annotated[str, Path(description="The token's id.")]) -> None:
    """It ends within two seconds everywhere."""
    await belongings.revoke_token(scope, token_id)
