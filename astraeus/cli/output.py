"""What goes to the terminal: plain aligned tables, the API's JSON, and nothing that a terminal would obey."""

import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import typer

DIGITS = re.compile(r"([0-9]{1,18})")
COLOURS = {
    "Running": typer.colors.GREEN,
    "Succeeded": typer.colors.GREEN,
    "Ready": typer.colors.GREEN,
    "Starting": typer.colors.CYAN,
    "Pending": typer.colors.YELLOW,
    "Stopping": typer.colors.YELLOW,
    "Returning": typer.colors.YELLOW,
    "Failed": typer.colors.RED,
    "Down": typer.colors.RED,
    "Lost": typer.colors.RED,
    "Cancelled": typer.colors.BRIGHT_BLACK,
}


def clean(value: object) -> str:
    """The text of a value with every control, format and unassigned character written out, on one line."""
    text = "" if value is None else str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns; the last one runs on, so that nothing is cut or wrapped."""
    typer.echo("\n".join(table_lines(columns, rows)))


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table."""
    cells = [list(columns), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(width(row[i]) for row in cells) for i in range(len(columns) - 1)]
    return [_line(row, widths, colour=number > 0 and coloured()) for number, row in enumerate(cells)]


def _line(row: list[str], widths: list[int], colour: bool) -> str:
    padded = [_painted(cell, colour) + " " * (w - width(cell)) for cell, w in zip(row, widths, strict=False)]
    return "  ".join([*padded, _painted(row[-1], colour)]).rstrip()


def _painted(cell: str, colour: bool) -> str:
    return typer.style(cell, fg=COLOURS[cell]) if colour and cell in COLOURS else cell


def width(text: str) -> int:
    """Terminal columns that printable text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Print `Name: value` lines with the values under one another; without a name the line goes on with the last."""
    found = [(f"{name}:" if name else "", clean(value)) for name, value in pairs]
    longest = max((len(name) for name, _ in found), default=0)
    colour = coloured()
    for name, value in found:
        typer.echo(f"{name:<{longest}} {_painted(value, colour)}")


def coloured() -> bool:
    """Whether colours reach a person who wants them."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def say(text: str) -> None:
    """Print one line of the product's own words, with values already in it."""
    typer.echo(clean(text))


def note(text: str) -> None:
    """Print one line to the standard error stream."""
    typer.echo(clean(text), err=True)


def print_json(document: Any) -> None:
    """Print JSON; ASCII only, so that no byte of it is one a terminal obeys or an encoding lacks."""
    typer.echo(json.dumps(document, indent=2))


def listing(
    items: Iterable[dict[str, Any]],
    columns: Sequence[str],
    row: Callable[[dict[str, Any]], Sequence[object]],
    as_json: bool,
) -> None:
    """Print a whole list: as a table with a row for each, or in the form of the API's pages."""
    found = list(items)
    if as_json:
        print_json({"items": found, "next_cursor": None})
    else:
        table(columns, map(row, found))


def clock(stamp: object) -> str:
    """A time of the API in the reader's own zone, to the second."""
    try:
        at = datetime.fromisoformat(str(stamp))
    except ValueError:
        return "" if stamp is None else str(stamp)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def numbers(values: Iterable[int]) -> str:
    """Numbers with runs folded: `0-3,7`."""
    parts: list[list[int]] = []
    for value in sorted(values):
        if parts and value == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], value]
        else:
            parts.append([value])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[1]}" for part in parts)


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts m-9 before m-10."""
    return tuple((int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in DIGITS.split(name))


def gib(size: object) -> str:
    """Bytes in GiB."""
    return f"{float(str(size)) / 1024**3:.0f} GiB"
