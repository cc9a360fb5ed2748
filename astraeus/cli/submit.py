"""Submitting a run, and waiting for its end."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from astraeus.cli import output
from astraeus.cli.options import Json, Label, Set
from astraeus.cli.patience import patiently
from astraeus.cli.planning import show_plan
from astraeus.cli.runs import FINAL, finish
from astraeus.cli.session import access, api

if TYPE_CHECKING:
    from astraeus.client.api import Api

POLL_SECONDS = 0.5


def run(
    template: Annotated[str | None, typer.Option("--template", "-t", help="Run this template.")] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Name of the run.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="SPEC", help="Run this JSON file; - is the standard input.")
    ] = None,
    changes: Set = None,
    label: Label = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would happen now; submit nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it has ended; exit 0 if it succeeded.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a run, from a template or a file."""
    from astraeus.client import specfile

    if (template is None) == (file is None):
        raise typer.BadParameter("give one of --template and --file", param_hint="'--template' / '--file'")
    if template and not name and not plan:
        raise typer.BadParameter("a run of a template needs a name", param_hint="'--name'")
    values = dict(specfile.parse_change(text) for text in changes or [])
    labels = dict(specfile.parse_label(text) for text in label or [])
    where = access()
    with api(where) as calls:
        if plan:
            body = calls.template(template)["body"] if template else read_specification(file)
            answer = calls.plan(_changed(body, name, labels, values))
            output.print_json(answer) if as_json else show_plan(answer)
            return
        if template:
            made = calls.run_template(template, name or "", labels=labels, changes=values)
        else:
            made = calls.submit(_changed(read_specification(file), name, labels, values))
        called, cluster = made["metadata"]["name"], made["cluster"]
        if as_json and not wait:
            output.print_json(made)
        elif not as_json:
            output.say(f"{called} submitted to {cluster}: {where.run_page(cluster, called)}")
        if wait:
            ended = wait_for(calls, made["metadata"]["uid"], quiet=as_json)
            output.print_json(ended) if as_json else None
            finish(ended, quiet=as_json)


def read_specification(file: Path | None) -> Any:
    """The decoded JSON of a file, or of the standard input for `-`."""
    from astraeus.client import specfile

    return specfile.read(None, sys.stdin.buffer.read()) if str(file) == "-" else specfile.read(file)


def _changed(body: Any, name: str | None, labels: dict[str, str], values: dict[str, Any]) -> Any:
    from astraeus.client import specfile

    if name:
        specfile.apply(body, "metadata.name", name)
    for path, value in values.items():
        specfile.apply(body, path, value)
    for key, label in labels.items():
        specfile.apply(body, "/metadata/labels/" + key.replace("~", "~0").replace("/", "~1"), label)
    return body


class Progress(Protocol):
    """Where the state of a run is shown while it is waited for."""

    def show(self, run: dict[str, Any]) -> None:
        """Show a run as it is now."""


def wait_for(calls: "Api", uid: str, quiet: bool = False) -> dict[str, Any]:
    """The run once it has ended, whoever has its name by then."""
    with _progress(quiet) as progress:
        while True:
            found = patiently(lambda: calls.run(uid))
            progress.show(found)
            if found["state"] in FINAL:
                return found
            time.sleep(POLL_SECONDS)


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    if quiet:
        yield _Quiet()
    elif sys.stdout.isatty():
        from astraeus.cli.bar import bar

        with bar() as shown:
            yield shown
    else:
        yield _Lines()


class _Quiet:
    def show(self, run: dict[str, Any]) -> None:
        pass


class _Lines:
    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None

    def show(self, run: dict[str, Any]) -> None:
        line = (run["state"], run["reason"])
        if line != self._last and run["state"] not in FINAL:
            output.say(f"{run['state']}: {run['reason']}")
        self._last = line
