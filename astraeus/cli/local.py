"""What runs on this computer: the embedded stack, an agent, the stored address, the version."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from astraeus.cli import output, session
from astraeus.cli.belongings import hidden
from astraeus.cli.options import Json

PASS_ON: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""All arguments belong to the program that is started, --help too."""


def login(
    address: Annotated[
        str, typer.Argument(metavar="API", show_default=False, help="http://SERVER/api/o/ORGANISATION/w/WORKSPACE")
    ],
) -> None:
    """Store an API address and a token; the token is typed or read from the standard input."""
    from astraeus.client import config

    if not address.startswith(("http://", "https://")) or "/o/" not in address:
        raise typer.BadParameter("must be http(s)://SERVER/api/o/ORGANISATION/w/WORKSPACE", param_hint="'API'")
    where = config.load(address, hidden("Token").strip())
    with session.api(where) as calls:
        next(calls.clusters(), None)
    path = config.save(where.api, where.token)
    output.say(f"Signed in to {where.api}; stored in {path}")


def dev(context: typer.Context) -> None:
    """Run all of Astraeus on this computer, with a virtual fleet; `dev machine NAME off|on` cuts a machine's power."""
    if context.args[:1] == ["machine"]:
        _machine(context.args[1:])
    else:
        session.replace_process("worker.dev", context.args)


def _machine(arguments: list[str]) -> None:
    from astraeus.agent import control
    from astraeus.client.config import default_dir

    directory = default_dir()
    if "--dir" in arguments[:-1]:
        place = arguments.index("--dir")
        directory = Path(arguments[place + 1])
        arguments = arguments[:place] + arguments[place + 2 :]
    orders: dict[str, tuple[Callable[[Path, str, bool], None], bool]] = {
        "off": (control.power, False),
        "on": (control.power, True),
        "unplug": (control.unplug, True),
        "plug": (control.unplug, False),
    }
    if len(arguments) != 2 or arguments[1] not in orders:
        output.note(f"Usage: astra dev machine NAME {'|'.join(orders)} [--dir DIR]")
        raise typer.Exit(session.USAGE)
    machine, word = arguments
    switch, position = orders[word]
    switch(directory / "agent", machine, position)
    output.say(f"{machine}: {word}")


def agent(context: typer.Context) -> None:
    """Run the agent of this machine."""
    session.replace_process("astraeus.agent", context.args)


def version(as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        typer.echo(json.dumps({"version": installed_version()}))
    else:
        typer.echo(f"astra {installed_version()}")


def installed_version() -> str:
    """The version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    try:
        return of("astraeus-orchestrator")
    except PackageNotFoundError:
        return "not installed"
