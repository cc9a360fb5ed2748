"""`astra plan`: a scheduling pass repeated on this computer, over the fleet as it is or as it might be."""

import json
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from astraeus.cli import output
from astraeus.cli.options import Json
from astraeus.cli.session import USAGE, api

if TYPE_CHECKING:
    from astraeus.placement.jsonform import Input
    from astraeus.placement.types import Plan

GZIP = b"\x1f\x8b"
SHOWN = 4


def plan(
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", metavar="FILE", help="From `astra bundle --snapshot`; else the API's present one."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="NAME", help="Take out a machine or a place; repeatable.")
    ] = None,
    more: Annotated[
        int, typer.Option("--with-machines", metavar="N", min=0, max=100_000, help="Add machines, idle.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Repeat a scheduling pass here, and print what it decides; nothing is changed anywhere."""
    from astraeus.placement import jsonform, planner
    from astraeus.placement.changed import with_machines
    from astraeus.placement.changed import without as taken_out
    from astraeus.placement.expect import expected

    given = _read(snapshot)
    picture, ended = taken_out(given.snapshot, without or ())
    if more:
        picture = with_machines(picture, more)
    decided = planner.plan(picture, given.now)
    after = expected(picture, given.now).starts
    decided = replace(decided, waits=tuple(replace(wait, starts_by=after.get(wait.claim)) for wait in decided.waits))
    if as_json:
        typer.echo(jsonform.write_plan(decided))
        return
    changes = len(picture.machines) - len(given.snapshot.machines)
    output.say(
        f"{picture.cluster}: {len(picture.machines)} machines{f' ({changes:+d})' if changes else ''}, {_sum(decided)}"
    )
    if ended:
        output.say(f"Ended with what was taken out: {', '.join(ended)}")
    before = expected(given.snapshot, given.now).starts if picture is not given.snapshot else after
    _show(
        decided,
        before,
        {ask.claim: ask.run_name for ask in picture.asks},
        {one.claim: one.run_name for one in picture.holdings},
    )


def _read(path: Path | None) -> "Input":
    from astraeus.placement.jsonform import read_input

    if path is None:
        with api() as calls:
            return read_input(json.dumps(calls.snapshot()))
    try:
        content = path.read_bytes()
        return read_input(_from_bundle(path) if content.startswith(GZIP) else content)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        output.note(f"astra: {path} cannot be read: {error}")
        raise typer.Exit(USAGE) from error


def _from_bundle(path: Path) -> bytes:
    with tarfile.open(path) as archive:
        names = [name for name in archive.getnames() if name.rpartition("/")[2] == "snapshot.json"]
        part = archive.extractfile(names[0]) if names else None
        if part is None:
            output.note(f"astra: {path} has no snapshot in it; make it with `astra bundle --snapshot`")
            raise typer.Exit(USAGE)
        return part.read()


def _sum(decided: "Plan") -> str:
    return f"{len(decided.grants)} start, {len(decided.waits)} wait, {len(decided.evictions)} make room"


def _show(decided: "Plan", before: Mapping[int, float], asks: dict[int, str], held: dict[int, str]) -> None:
    rows: list[tuple[Any, ...]] = []
    for grant in decided.grants:
        machines = _few(member.machine for member in grant.members)
        rows.append((asks[grant.claim], "starts", "now", f"{grant.place.words} ({grant.place.network}): {machines}"))
    rows += [(held[one.claim], "makes room", "", f"for {one.for_run}") for one in decided.evictions]
    for wait in decided.waits:
        start = _start(wait.starts_by, before.get(wait.claim))
        rows.append((asks[wait.claim], "waits", start, f"{wait.position}. {wait.reason}"))
    if rows:
        output.table(("RUN", "WOULD", "STARTS BY", "WHY AND WHERE"), rows)


def _start(at: float | None, before: float | None) -> str:
    """The latest start, and what it was before the fleet was changed."""
    return _clock(at) if at == before else f"{_clock(at)} (was {_clock(before)})"


def _clock(at: float | None) -> str:
    return "unknown" if at is None else output.clock(datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"))


def _few(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
