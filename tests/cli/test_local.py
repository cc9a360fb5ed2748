"""What runs on this computer: the stack, an agent, the power of virtual machines."""

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@contextmanager
def agents_door(directory: Path, answer: dict[str, Any]) -> Iterator[list[Any]]:
    """The agent's control socket, with one answer to everything."""
    directory.mkdir(parents=True)
    heard: list[Any] = []
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"/proc/self/fd/{handle}/control.sock")
        door.listen()

        def serve() -> None:
            line, _ = door.accept()
            with line, line.makefile("rwb") as file:
                heard.append(json.loads(file.readline()))
                file.write(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield heard
        finally:
            thread.join(5)
            os.close(handle)


@pytest.mark.parametrize(("word", "order"), [("off", {"power": "off"}), ("on", {"power": "on"})])
def test_a_machines_power(astra: Any, home: Path, word: str, order: dict[str, str]) -> None:
    with agents_door(home / "dev" / "agent", {"ok": True}) as heard:
        result = astra("dev", "machine", "m-3", word)
    assert (result.exit_code, result.output) == (0, f"m-3: {word}\n")
    assert heard == [{"machine": "m-3", **order}]


def test_a_machine_of_another_directory_that_is_not_there(astra: Any, home: Path) -> None:
    with agents_door(home / "other" / "agent", {"ok": False, "error": "there is no machine m-99 here"}):
        result = astra("astraeus", "dev", "machine", "--dir", str(home / "other"), "m-99", "unplug")
    assert (result.exit_code, result.stderr) == (1, "astra: there is no machine m-99 here\n")


def test_a_stack_that_does_not_run_ends_with_5(astra: Any) -> None:
    assert astra("dev", "machine", "m-3", "off").exit_code == 5


def test_words_a_machine_does_not_know_end_with_2(astra: Any) -> None:
    assert astra("dev", "machine", "m-3", "explode").exit_code == 2
    assert astra("dev", "machine").exit_code == 2


def program(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "astraeus.cli.main", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=60)


@pytest.mark.parametrize(("command", "option"), [("dev", "--temporal-port"), ("agent", "--fleet")])
def test_programs_get_their_arguments_whatever_folders_lie_around(home: Path, command: str, option: str) -> None:
    for name in ("worker", "astraeus"):
        (home / name).mkdir()
        (home / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    done = program(command, "--help", cwd=ROOT)
    assert option in done.stdout
    assert done.returncode == 0


def test_help_loads_neither_the_models_nor_http(home: Path) -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from astraeus.cli.main import app;"
        "CliRunner().invoke(app, ['--help']);"
        "print(sorted({'httpx', 'pydantic', 'asyncio', 'sqlalchemy'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout == "[]\n"


def test_version(astra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"1.2.3 of {name}")
    assert astra("version").output == "astra 1.2.3 of astraeus-orchestrator\n"
    assert json.loads(astra("version", "--json").output) == {"version": "1.2.3 of astraeus-orchestrator"}
