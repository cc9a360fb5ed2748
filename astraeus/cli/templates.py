"""Specifications saved under a name."""

from pathlib import Path
from typing import Annotated, Any

import typer

from astraeus.cli import output
from astraeus.cli.options import Json
from astraeus.cli.session import api

app = typer.Typer(help="Specifications saved under a name.", no_args_is_help=True)
Template = Annotated[str, typer.Argument(metavar="TEMPLATE", show_default=False, help="Name of the template.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the templates."""
    with api() as calls:
        output.listing(calls.templates(), ("NAME", "UPDATED", "BY"), _row, as_json)


def _row(template: dict[str, Any]) -> tuple[object, ...]:
    return template["name"], output.clock(template.get("updated_at")), template.get("updated_by")


@app.command()
def show(template: Template) -> None:
    """Print a template's specification as JSON."""
    with api() as calls:
        output.print_json(calls.template(template)["body"])


@app.command()
def save(
    template: Template,
    file: Annotated[Path, typer.Option("--file", "-f", metavar="SPEC", help="A JSON file; - is the standard input.")],
) -> None:
    """Save a specification as a template, in place of one of the same name."""
    from astraeus.cli.submit import read_specification

    with api() as calls:
        calls.save_template(template, read_specification(file))
    output.say(f"{template} saved; run it with: astra run --template {template} --name NAME")


@app.command()
def delete(template: Template) -> None:
    """Delete a template; its runs stay."""
    with api() as calls:
        calls.delete_template(template)
    output.say(f"{template} deleted")
