import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.fake_api import TOKEN, FakeApi, serving
from typer.testing import CliRunner

from astraeus.cli import session
from astraeus.cli.main import app

Astra = Callable[..., Any]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serving() as fake:
        yield fake


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ASTRALYX_API", "ASTRALYX_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ASTRAEUS_DIR", str(tmp_path / "dev"))
    monkeypatch.setattr("astraeus.client.connection.RETRY_PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def astra(api: FakeApi, home: Path, monkeypatch: pytest.MonkeyPatch) -> Astra:
    monkeypatch.setenv("ASTRALYX_API", api.base)
    monkeypatch.setenv("ASTRALYX_TOKEN", TOKEN)

    def run(*arguments: str, input: str | bytes | None = None) -> Any:
        session.given.clear()
        return CliRunner().invoke(app, list(arguments), input=input)

    return run


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
