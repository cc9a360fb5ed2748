"""Packages are what the layout says: nobody shadows them, and importing one does nothing."""

import ast
import importlib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from house.source import PACKAGES, python_files, short, tracked, tree

DISTRIBUTION = "astraeus-orchestrator"
DOOR = "astraeus/client/__init__.py"
"""What users import in scripts: it may name the client's classes, since no workflow reaches it."""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_brings_a_package_of_this_name(package: str) -> None:
    """Other distributions called `astraeus` exist, and some install a top-level `workflows`."""
    others = set(packages_distributions().get(package, ())) - {DISTRIBUTION}
    assert not others, f"{', '.join(others)} overwrote the package {package}; uninstall it, then install {DISTRIBUTION}"


@pytest.mark.parametrize("package", PACKAGES)
def test_all_packages_come_from_one_place(package: str) -> None:
    places = {Path(path).parent for name in ("astraeus", package) for path in importlib.import_module(name).__path__}
    assert len(places) == 1, f"{package} is imported from elsewhere than astraeus: {places}"


def test_tests_are_no_packages() -> None:
    """A tests/workflows package would shadow the real one."""
    found = [short(path) for path in python_files("tests") if path.name == "__init__.py"]
    assert not found, "remove them: pytest imports tests by file"


def test_package_files_hold_a_docstring_only() -> None:
    """The workflow sandbox runs each of them again for every workflow."""
    for path in python_files(*PACKAGES):
        if path.name == "__init__.py" and short(path) != DOOR:
            body = tree(path).body
            assert len(body) == 1, f"{short(path)} does something; move it into a module"
            assert ast.get_docstring(tree(path)), f"{short(path)} has no docstring"


def test_every_folder_with_modules_is_a_package() -> None:
    """The wheel and import-linter skip a folder without __init__.py."""
    folders = {path.parent for path in python_files(*PACKAGES)}
    present = set(tracked())
    # Alembic runs its migrations by path.
    assert not [
        short(folder) for folder in folders if folder / "__init__.py" not in present and folder.name != "versions"
    ]
