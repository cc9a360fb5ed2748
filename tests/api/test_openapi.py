"""The OpenAPI document, and schemathesis over the whole API with all of its checks."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

CONFIG = """
[parameters]
"path.org" = "acme"
"path.workspace" = "vision"
"query.follow" = "0"
"""


async def schemathesis(base: str, token: str, where: Path, *options: str) -> tuple[int, str]:
    """Run schemathesis as its users do; its exit code and what it printed."""
    (where / "schemathesis.toml").write_text(CONFIG)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(where / "schemathesis.toml")),
        *("run", f"{base}/openapi.json", "--header", f"Authorization: Bearer {token}", "--checks", "all"),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", "8", "--seed", "1", "--no-color", *options),
        cwd=where,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    return process.returncode or 0, printed.decode()


@pytest.mark.slow
async def test_schemathesis_finds_nothing(both: Any, serve: Any, tmp_path: Path) -> None:
    async with serve(both) as base:
        code, printed = await schemathesis(base, both.tokens["admin"], tmp_path, "--exclude-path-regex", "^/agent/")
    assert code == 0, printed


@pytest.mark.slow
async def test_schemathesis_finds_nothing_on_the_agents_side(
    world: Any, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.services.agents.WAIT_MOST_SECONDS", 0.01)
    async with serve(world) as base:
        code, printed = await schemathesis(base, world.tokens["machine"], tmp_path, "--include-path-regex", "^/agent/")
    assert code == 0, printed
