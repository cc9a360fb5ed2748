"""The real tools on a simulated fabric: what they print now is read, and a cable that is pulled is found."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.fabrics import A, B, E, built_groups, derived, groups, inventory, text, truth

from astraeus.topology import tools
from astraeus.topology.scan import Scan

NEEDED = ("ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "ibqueryerrors")
ABSENT = [name for name in NEEDED if shutil.which(name, path=f"{os.defpath}:/usr/sbin:/sbin:/usr/local/sbin") is None]
LIBRARIES = sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))
SECONDS = 60
QUIET: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(ABSENT) or not LIBRARIES,
        reason=f"needs ibsim-utils, libumad2sim0, infiniband-diags, opensm; missing: {ABSENT or 'libumad2sim'}",
    ),
]


@dataclass
class Fabric:
    """A running simulator; its console takes lines."""

    process: subprocess.Popen[bytes]
    environment: dict[str, str]
    folder: Path

    def order(self, line: str) -> None:
        """Hand a line to the console."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def run(self, *command: str) -> str:
        """What a tool prints on this fabric; the simulated ports leave files in the folder it runs in."""
        told = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return told.stdout

    def scan(self) -> Scan:
        """What all tools say together."""
        outputs: list[tuple[tools.Tool, str]] = [
            ("ibnetdiscover", self.run("ibnetdiscover")),
            ("iblinkinfo", self.run("iblinkinfo", "-l")),
            ("ibqueryerrors", self.run("ibqueryerrors")),
        ]
        assert [tools.sniff(words) for _, words in outputs] == [tool for tool, _ in outputs]
        return tools.together((tool, tools.parse(words, tool)) for tool, words in outputs)


@pytest.fixture
def fabric(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fabric]:
    # Older simulators know no NDR; the speed of all links changes nothing of the fabric's shape.
    words = text(f"{request.param}/fabric.net").replace("speed=15", "speed=7").replace("s=15", "s=7")
    (tmp_path / "fabric.net").write_text(words)
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    environment = {**os.environ, "PATH": path, "IBSIM_SOCKNAME": f"astraeus-{os.getpid()}"}
    command = ["ibsim", "-s", "-N", "4096", "-S", "512", "-P", "32768", "fabric.net"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, **QUIET)
    started = [process]
    opensm = {"SIM_SET_ISSM": "1", "OSM_TMP_DIR": str(tmp_path), "OSM_CACHE_DIR": str(tmp_path)}
    try:
        found = Fabric(process, {**environment, "LD_PRELOAD": str(LIBRARIES[-1])}, tmp_path)
        deadline = time.monotonic() + SECONDS
        while "Switch" not in found.run("ibnetdiscover"):
            assert process.poll() is None, "ibsim ended"
            assert time.monotonic() < deadline, "ibsim does not answer"
        # The subnet manager gives out the addresses by which counters are asked for.
        log = tmp_path / "opensm.log"
        sweep = ["opensm", "-d", "2", "-R", "updn", "-f", str(log)]
        started.append(subprocess.Popen(sweep, cwd=tmp_path, env=found.environment | opensm, **QUIET))
        while "## Summary" not in found.run("ibqueryerrors") or "SUBNET UP" not in log.read_text():
            assert time.monotonic() < deadline, "opensm gives out no addresses"
        yield found
    finally:
        for one in reversed(started):
            one.kill()
            one.communicate()


@pytest.mark.parametrize(("fabric", "folder"), [(A, A), (E, E)], indirect=["fabric"])
def test_a_fabric_comes_out_as_built(fabric: Fabric, folder: str) -> None:
    found = derived(fabric.scan(), inventory(folder))
    assert groups(found) == built_groups(folder)
    assert found.unread == 0
    assert found.findings == ()


@pytest.mark.parametrize("fabric", [A], indirect=True)
def test_a_cable_is_pulled_and_a_port_counts_errors(fabric: Fabric) -> None:
    guids = {name: guid.removeprefix("0x") for guid, name in truth(A)["nic_guids"].items()}
    leaf = truth(A)["guids"]["leaf-r0-g1"].removeprefix("0x")
    fabric.order(f'Unlink "H-{guids["node004/mlx5_7"]}"[1]')
    fabric.order(f'PerformanceSet "S-{leaf}"[4] PortCounters.SymbolErrorCounter=4711')
    deadline = time.monotonic() + SECONDS
    while "4711" not in fabric.run("ibqueryerrors"):
        assert time.monotonic() < deadline, "the counter was not set"
    missing, errors = derived(fabric.scan(), inventory(A)).findings
    assert (missing.kind, missing.place) == ("port_missing", "node004 mlx5_7")
    assert (missing.detail["leaf"], missing.detail["port"]) == ("leaf-r7-g0", 4)
    assert (errors.kind, errors.place, errors.machines) == ("errors", "leaf-r0-g1 port 4", ("node012",))


@pytest.mark.parametrize("fabric", [B], indirect=True)
def test_faults_of_wiring_are_found(fabric: Fabric) -> None:
    kinds = [finding.kind for finding in derived(fabric.scan(), inventory(B)).findings]
    assert kinds.count("miswired") == 2
    assert {"port_missing", "uplink_down"} <= set(kinds)
