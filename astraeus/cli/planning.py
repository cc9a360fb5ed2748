"""Why a run waits, and what would happen to a specification now."""

from collections.abc import Mapping
from typing import Any

import typer

from astraeus.cli import output

INDENT = "  "


def show(document: Mapping[str, Any], depth: int = 0) -> None:
    """A document as lines of `Name: value`, lists as lines of their own; what is absent is left out."""
    for key, value in document.items():
        if value is None or value == [] or value == {}:
            continue
        name = INDENT * depth + output.clean(key).replace("_", " ").capitalize() + ":"
        if isinstance(value, Mapping):
            typer.echo(name)
            show(value, depth + 1)
        elif isinstance(value, list):
            typer.echo(name)
            for item in value:
                typer.echo(f"{INDENT * (depth + 1)}- {_one_line(item)}")
        else:
            typer.echo(f"{name} {_one_line(value)}")


def _one_line(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{output.clean(k)}: {_one_line(v)}" for k, v in value.items() if v not in (None, [], {}))
    if isinstance(value, list):
        return ", ".join(map(_one_line, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return output.clean(value)
