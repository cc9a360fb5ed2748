"""Decisions are pure: where they are made there is no clock, no chance and no I/O to reach for."""

import ast
from collections.abc import Iterator
from pathlib import Path

from house.source import ROOT, python_files, short, tree

OUTSIDE = {
    *("asyncio", "concurrent", "multiprocessing", "threading", "socket", "selectors", "subprocess", "signal"),
    *("random", "secrets", "uuid", "time", "zoneinfo", "os", "pathlib", "shutil", "tempfile", "io"),
    *("logging", "urllib", "http", "sqlite3"),
}
CLOCK_CALLS = {"now", "utcnow", "today"}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module.partition(".")[0]


def clock_calls(path: Path) -> Iterator[int]:
    """Calls such as `datetime.now()`; `workflow.now()` is Temporal's own, and the same at every replay."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS:
            owner = node.func.value
            if not (isinstance(owner, ast.Name) and owner.id == "workflow"):
                yield node.lineno


def pure_files() -> list[Path]:
    core = [ROOT / "astraeus" / name for name in ("model", "placement", "topology")]
    files = [path for path in python_files("astraeus") if any(folder in path.parents for folder in core)]
    assert files
    return files + python_files("workflows")


def test_no_module_that_touches_the_world_is_imported() -> None:
    found = [
        f"{short(path)}:{line}: {name}" for path in pure_files() for line, name in imports(path) if name in OUTSIDE
    ]
    assert not found, "pass the value in, or move the effect to activities/"


def test_nobody_asks_the_clock() -> None:
    found = [f"{short(path)}:{line}" for path in pure_files() for line in clock_calls(path)]
    assert not found, "pass the time in; in workflows use workflow.now()"


def test_numpy_is_not_asked_for_random_numbers() -> None:
    found = [
        f"{short(path)}:{node.lineno}"
        for path in pure_files()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr == "random"
    ]
    assert not found
