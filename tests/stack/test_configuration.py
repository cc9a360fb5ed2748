"""PostgreSQL in place of SQLite, and a Temporal that runs elsewhere: by configuration alone."""

import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack.conftest import shell
from support.stack import DevStack


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def temporal(tmp_path: Path) -> Iterator[str]:
    """A Temporal server that is none of the stack's parts, without any of our search attributes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Path(sysconfig.get_path("scripts")) / "temporal"
    command = [str(server), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([*command, "--log-level", "error"], stdout=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + 30
        while not listens(port):
            assert time.monotonic() < ends, "the Temporal server did not come up"
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.slow
def test_an_external_ledger_and_temporal(tmp_path: Path, postgres_ledger_url: str, temporal: str) -> None:
    environment = {"ASTRAEUS_LEDGER_URL": postgres_ledger_url, "TEMPORAL_ADDRESS": temporal}
    with DevStack(tmp_path / "stack", environment=environment) as stack:
        facts = stack.facts
        assert facts["temporal"] == temporal
        assert set(facts["pids"]) == {"api", "worker", "agent"}
        stack.submit(shell("elsewhere", "test $ASTRAEUS_ATTEMPT = 2 || exit 1", machines=8, gpus=8))
        run = stack.reach("elsewhere", "Succeeded", "Failed")
        assert (run["state"], run["attempt"], run["restarts"]["left"]) == ("Succeeded", 2, 9)
        stack.killed_and_back("worker")
        stack.submit(shell("after", "true"))
        assert stack.reach("after", "Succeeded", "Failed")["state"] == "Succeeded"
        assert not (stack.directory / "ledger.db").exists()
        assert not (stack.directory / "temporal.db").exists()
