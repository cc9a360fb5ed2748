"""The project's own files, as the house tests see them."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("astraeus", "workflows", "activities", "worker", "api")


@cache
def tracked() -> tuple[Path, ...]:
    """Every file under version control, or every file there is where the project was unpacked without it."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        return tuple(path for line in listing.stdout.splitlines() if (path := ROOT / line).is_file())
    skipped = {"build", "dist", "__pycache__"}
    return tuple(
        path
        for path in sorted(ROOT.rglob("*"))
        if path.is_file()
        and not any(part in skipped or part.startswith(".") for part in path.relative_to(ROOT).parts[:-1])
    )


def python_files(*folders: str) -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders]


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))
