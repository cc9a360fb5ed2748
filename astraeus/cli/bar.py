"""The bar that fills while a gang starts; only for a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from astraeus.cli import output
from astraeus.model.words import starting_progress


class Bar:
    """A run's state and reason on one line; a bar while its members arrive."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def show(self, run: dict[str, Any]) -> None:
        """Show a run as it is now."""
        counts = starting_progress(run["reason"])
        ready, size = counts or (0, None)
        text = run["reason"] if counts else f"{run['state']}: {run['reason']}"
        self._progress.update(self._task, description=output.clean(text), completed=ready, total=size)


@contextmanager
def bar() -> Iterator[Bar]:
    """A bar that goes away when the wait is over."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, transient=True) as progress:
        yield Bar(progress, progress.add_task("Waiting", total=None))
