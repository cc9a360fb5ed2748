"""A file is one idea and a function is one step: nineteen of twenty are short, and none is long."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from house.source import PACKAGES, python_files, short, tree

FILE_LINES, FILE_LINES_MOST = 400, 600
FUNCTION_LINES, FUNCTION_LINES_MOST = 40, 60
SHARE = 0.95

Size = tuple[int, str]


def files(*folders: str) -> list[Path]:
    """Migrations are the schema's history: they are as long as the schema was."""
    return [path for path in python_files(*folders) if path.parent.name != "versions"]


def file_sizes(paths: list[Path]) -> Iterator[Size]:
    for path in paths:
        yield len(path.read_text().splitlines()), short(path)


def function_sizes(paths: list[Path]) -> Iterator[Size]:
    for path in paths:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                yield size, f"{short(path)}:{node.lineno} {node.name}"


def too_long(sizes: Iterator[Size], most: int, usual: int) -> list[Size]:
    """What is over the limit, or over the usual size where too many are."""
    ordered = sorted(sizes, reverse=True)
    assert ordered
    over = [size for size in ordered if size[0] > usual]
    return over if len(over) > (1 - SHARE) * len(ordered) else [size for size in over if size[0] > most]


@pytest.mark.parametrize("folders", [(*PACKAGES, "deploy"), ("tests",)], ids=["product", "tests"])
def test_files_are_short(folders: tuple[str, ...]) -> None:
    assert not too_long(file_sizes(files(*folders)), FILE_LINES_MOST, FILE_LINES), "take them apart"


@pytest.mark.parametrize("folders", [(*PACKAGES, "deploy"), ("tests",)], ids=["product", "tests"])
def test_functions_are_short(folders: tuple[str, ...]) -> None:
    assert not too_long(function_sizes(files(*folders)), FUNCTION_LINES_MOST, FUNCTION_LINES), "take them apart"
