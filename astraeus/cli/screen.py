"""A table that stays on the screen; only for a terminal."""

from bisect import bisect_right
from collections.abc import Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from astraeus.cli import output


def fitting(columns: Sequence[str], rows: Sequence[Sequence[object]], console: Console) -> Group:
    """The first rows, as many as the terminal has room for, and how many more there are; long cells are folded."""
    height = console.size.height

    def lines(count: int) -> int:
        return len(console.render_lines(_first(columns, rows, count), pad=False))

    most = min(len(rows), height)
    # A row that alone is too high is shown as far as it goes.
    count = max(bisect_right(range(most + 1), height, key=lines) - 1, min(1, most))
    return _first(columns, rows, count)


def _first(columns: Sequence[str], rows: Sequence[Sequence[object]], count: int) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows[:count]:
        table.add_row(*map(_cell, row))
    left = len(rows) - count
    return Group(table, Text(f"… and {left} more")) if left else Group(table)


def _cell(value: object) -> Text:
    text = output.clean(value)
    return Text(text, style=output.COLOURS.get(text, ""))
