"""What was installed works by itself: `.ci/run` runs these tests against the built wheel, away from this checkout."""

import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from house.source import PACKAGES, ROOT, tracked
from support.stack import DevStack

DISTRIBUTION = "astraeus-orchestrator"


def from_wheel() -> bool:
    try:
        url = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return False
    return not json.loads(url or "{}").get("dir_info", {}).get("editable", False)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_of_the_package_is_there(package: str) -> None:
    (place,) = import_module(package).__path__
    wanted = [path.relative_to(ROOT / package) for path in tracked() if path.is_relative_to(ROOT / package)]
    assert wanted
    assert [str(path) for path in wanted if not (Path(place) / path).exists()] == []


@pytest.mark.skipif(not from_wheel(), reason="the project is not installed from a wheel")
@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_is_the_installed_one(package: str) -> None:
    (place,) = import_module(package).__path__
    assert Path(place) == Path(str(distribution(DISTRIBUTION).locate_file(package)))


@pytest.mark.skipif(not from_wheel(), reason="the project is not installed from a wheel")
def test_the_command_is_installed() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("astra"), "--help"], capture_output=True, text=True, check=True
    )
    assert "Run large distributed training" in done.stdout


def test_a_gang_runs_on_a_stack_of_its_own(tmp_path: Path) -> None:
    spec = {
        "metadata": {"name": "hello"},
        "spec": {
            "task_template": {
                "command": "bash",
                "args": ["-c", "echo rank $RANK of $WORLD_SIZE; cat /app/words"],
                "configs": [{"mounts": ["/app/words"], "value": "from a config"}],
                "requested_resources": {"gpu_requests": {"count": 16}, "machines": 2},
            }
        },
    }
    with DevStack(tmp_path / "stack") as stack:
        stack.submit(spec)
        assert stack.reach("hello", "Succeeded", "Failed")["state"] == "Succeeded"
        assert stack.astra("logs", "hello-1").stdout == "rank 1 of 2\nfrom a config"
