"""What runs use and who may use the workspace: drives, secrets, tokens."""

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from astraeus.cli import output
from astraeus.cli.options import Json
from astraeus.cli.session import USAGE, api

drives = typer.Typer(help="Drives that runs mount.", no_args_is_help=True)
secrets = typer.Typer(help="Secrets that runs find in their environment.", no_args_is_help=True)
tokens = typer.Typer(help="API tokens.", no_args_is_help=True)


class Kind(StrEnum):
    """Where a drive's files are."""

    MACHINE = "machine"
    SHARED = "shared"


class Role(StrEnum):
    """What a token may do."""

    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"
    MACHINE = "machine"


Drive = Annotated[str, typer.Argument(metavar="DRIVE", show_default=False, help="Name of the drive.")]
Secret = Annotated[str, typer.Argument(metavar="SECRET", show_default=False, help="Name of its variable.")]
Token = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="Id of the token, from the list.")]


@drives.command("list")
def list_drives(as_json: Json = False) -> None:
    """List the drives."""
    with api() as calls:
        output.listing(calls.drives(), ("NAME", "KIND", "PATH"), _drive_row, as_json)


def _drive_row(drive: dict[str, Any]) -> tuple[object, ...]:
    return drive["name"], drive["kind"], drive.get("path") or "kept by the agent"


@drives.command("add")
def add_drive(
    drive: Drive,
    kind: Annotated[Kind, typer.Option("--kind", help="On each machine, or shared by all.")] = Kind.MACHINE,
    path: Annotated[str | None, typer.Option("--path", help="Its directory; else the agent keeps one.")] = None,
) -> None:
    """Add a drive, or change one."""
    with api() as calls:
        calls.save_drive(drive, kind.value, path)
    output.say(f"{drive} added")


@drives.command("delete")
def delete_drive(drive: Drive) -> None:
    """Forget a drive; its files stay."""
    with api() as calls:
        calls.delete_drive(drive)
    output.say(f"{drive} deleted; its files stay")


@secrets.command("list")
def list_secrets(as_json: Json = False) -> None:
    """List the names of the secrets; values are never shown."""
    with api() as calls:
        output.listing(calls.secrets(), ("NAME",), lambda secret: (secret["name"],), as_json)


@secrets.command("set")
def set_secret(secret: Secret) -> None:
    """Set a secret to what is typed, or to the standard input without its last line end."""
    value = hidden("Value")
    with api() as calls:
        calls.save_secret(secret, value)
    output.say(f"{secret} set")


@secrets.command("delete")
def delete_secret(secret: Secret) -> None:
    """Delete a secret."""
    with api() as calls:
        calls.delete_secret(secret)
    output.say(f"{secret} deleted")


@tokens.command("list")
def list_tokens(as_json: Json = False) -> None:
    """List the tokens, without their text."""
    with api() as calls:
        output.listing(calls.tokens(), ("ID", "NAME", "ROLE", "LAST USED", "ENDS"), _token_row, as_json)


def _token_row(token: dict[str, Any]) -> tuple[object, ...]:
    used = output.clock(token.get("last_used_at")) or "never"
    ends = output.clock(token.get("expires_at")) or "never"
    if token.get("revoked_at"):
        ends = f"revoked {output.clock(token['revoked_at'])}"
    return token["id"], token["name"], token["role"], used, ends


@tokens.command("create")
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Who or what will use it.")],
    role: Annotated[Role, typer.Option("--role", help="What it may do.")] = Role.EDITOR,
    cluster: Annotated[str | None, typer.Option("--cluster", help="For the role machine: of this cluster.")] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, help="Ends after this many days.")] = None,
    as_json: Json = False,
) -> None:
    """Make a token and print it; it is shown this once."""
    with api() as calls:
        made = calls.create_token(name, role.value, cluster=cluster, expires_in_days=days)
    if as_json:
        output.print_json(made)
    else:
        output.say(made["token"])
        output.note(f"{made['name']} ({made['role']}, id {made['id']}): keep the token now, it is not shown again")


@tokens.command("revoke")
def revoke_token(token: Token) -> None:
    """End a token for good."""
    with api() as calls:
        calls.revoke_token(token)
    output.say(f"{token} revoked")


def hidden(prompt: str) -> str:
    """A value that must not stand on a command line: typed unseen, or read from the standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(prompt, hide_input=True, err=True))
    try:
        value = sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        output.note("astra: the standard input is not UTF-8 text")
        raise typer.Exit(USAGE) from None
    if not value:
        output.note("astra: the standard input is empty; type the value, or pipe it in")
        raise typer.Exit(USAGE)
    return value
