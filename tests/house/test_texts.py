"""What is written down is true where a program can tell: links, pins, targets; and nothing of one machine is in it."""

import re
import tomllib
from pathlib import Path

import pytest
from house.source import PACKAGES, ROOT, python_files, short, tracked

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"```.*?```", re.DOTALL)
FOREIGN = re.compile(r"(p[y]pi|python[h]osted|n[p]mjs|d[e]bian)[.](org|com)|/wor[k]/|/far[m]/|/bash_[j]obs|/roo[t]/")
UNFINISHED = re.compile(r"\b(TO[D]O|FI[X]ME|X[X]X)\b")


def texts() -> list[Path]:
    return [path for path in tracked() if path.suffix in {".py", ".md", ".toml", ".yaml", ".json", ".txt", ".html"}]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [path for path in tracked() if path.suffix == ".md"], ids=short)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{short(page)} links to {target}"
        if anchor:
            assert anchor in anchors(found), f"{short(page)} links to {target}, which has no such heading"


def test_nothing_of_one_machine_is_written_down() -> None:
    found = [f"{short(path)}: {hit.group()}" for path in texts() if (hit := FOREIGN.search(path.read_text()))]
    assert not found, "take machine paths and registry hosts out"


def test_nothing_is_left_for_later_in_the_code() -> None:
    found = [short(path) for path in python_files(*PACKAGES, "deploy", "tests") if UNFINISHED.search(path.read_text())]
    assert not found, "do it, or write it into docs/roadmap.md"


def pins(name: str) -> dict[str, str]:
    lines = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s\\]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in lines}


def test_every_dependency_is_pinned_and_pins_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    constraints = pins("constraints.txt")
    for wanted in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
        name, _, exact = wanted.partition("==")
        key = re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~! ]", name)[0]).lower()
        assert key in constraints, f"{key} has no version in constraints.txt"
        if exact:
            assert constraints[key] == exact
    for name, version in pins("deploy/hashes.txt").items():
        assert constraints[name] == version


def test_every_target_of_the_makefile_is_in_its_help() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE)
    assert sorted(targets) == sorted(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert len(set(targets)) == len(targets), "make would ignore the first of two"
    assert {"demo", "demo-torch", "test", "check", "bench", "help"} <= set(targets)
