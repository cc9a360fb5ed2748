"""One call of the program: where the API is, and how failures become words and exit codes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from astraeus.cli import output

if TYPE_CHECKING:
    from astraeus.client.api import Api
    from astraeus.client.config import Access
    from astraeus.client.errors import ApiError
    from astraeus.client.network import Network

FAILED, USAGE, NOT_FOUND, NOT_ALLOWED, AWAY = 1, 2, 3, 4, 5
INTERRUPTED = 130
EXIT_CODES = {401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND}

given: dict[str, Any] = {}
"""The options before the command."""


class Root(TyperGroup):
    """The commands, also under the middle word `astraeus`; every failure is one sentence and an exit code."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; `astraeus` is this group itself."""
        return self if cmd_name == "astraeus" else super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with failures():
            return super().invoke(ctx)


@contextmanager
def failures() -> Iterator[None]:
    """Turn what the client raises into words on the error stream and an exit code."""
    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        code = _report(error)
        if code is None:
            raise
        raise typer.Exit(code) from error


def _report(error: Exception) -> int | None:
    from astraeus.client.errors import ApiError, NotConfigured, Unsendable
    from astraeus.client.specfile import BadChange
    from astraeus.model.errors import AstraeusError

    if isinstance(error, BadChange | NotConfigured | Unsendable):
        output.note(f"astra: {error}")
        return USAGE
    if isinstance(error, AstraeusError):
        output.note(f"astra: {error}")
        return AWAY if error.retryable else EXIT_CODES.get(error.http_status, FAILED)
    return _refused(error) if isinstance(error, ApiError) else None


def _refused(error: "ApiError") -> int:
    if error.faults:
        output.note("astra: refused:")
        for fault in error.faults:
            output.note(f"  {fault.pointer or 'the body'} {fault.message}")
    else:
        output.note(f"astra: {error.detail}")
    return AWAY if error.away else EXIT_CODES.get(error.status, FAILED)


def access() -> "Access":
    """The address and token of this call."""
    from astraeus.client import config

    token_file: Path | None = given.get("token_file")
    return config.load(given.get("api"), read_token(token_file) if token_file else None)


def read_token(path: Path) -> str:
    """The token in a file, `-` for the standard input."""
    typed = str(path) == "-"
    try:
        return (sys.stdin.buffer.readline() if typed else path.read_bytes()).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        output.note(f"astra: {'the standard input' if typed else path} cannot be read: {error}")
        raise typer.Exit(USAGE) from error


@contextmanager
def api(where: "Access | None" = None) -> Iterator["Api"]:
    """The API of this call."""
    from astraeus.client.api import Api
    from astraeus.client.connection import Connection

    where = where or access()
    with Connection(where.api, where.token, given.get("timeout") or 30.0) as connection:
        yield Api(connection)


@contextmanager
def network(cluster: str | None) -> "Iterator[Network]":
    """The calls about a cluster's network."""
    from astraeus.client.network import Network

    with api() as calls:
        yield Network(calls.connection, cluster)


def replace_process(module: str, arguments: list[str]) -> None:
    """Become `python -m module`; -P keeps a folder of the same name in the working directory out of it."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
