"""The PyTorch script under torchrun, on CPUs with gloo; needs the `torch` extra."""

import os
import signal
import subprocess
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest
from examples.gang import free_port

SCRIPT = Path(__file__).parents[2] / "deploy/examples/train_ddp.py"
TORCHRUN = Path(sysconfig.get_path("scripts")) / "torchrun"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra: make demo-torch installs it"),
]


def start(checkpoints: Path, attempt: int, steps: int) -> subprocess.Popen[str]:
    """One worker of two ranks, as the recipe's command starts it."""
    command = [str(TORCHRUN), "--nnodes=1", "--nproc-per-node=2", "--node-rank=0", "--master-addr=127.0.0.1"]
    env = {"STEPS": str(steps), "LOG_EVERY": "1", "SAVE_EVERY": "5", "CKPT_DIR": str(checkpoints)}
    return subprocess.Popen(
        [*command, f"--master-port={free_port()}", str(SCRIPT)],
        env={**os.environ, **env, "ASTRAEUS_ATTEMPT": str(attempt), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_sigterm_saves_and_the_next_attempt_resumes(tmp_path: Path) -> None:
    with start(tmp_path, attempt=1, steps=1_000_000) as first:
        assert first.stdout is not None
        seen = []
        for line in first.stdout:
            seen.append(line)
            if line.startswith("step 7/"):
                assert line.rstrip().endswith("on 2 GPUs")
                first.send_signal(signal.SIGTERM)
            if "checkpoint saved" in line:
                break
        first.communicate()
    stopped = int(seen[-1].split("stopped after step ")[1].split(",")[0])
    with start(tmp_path, attempt=2, steps=stopped + 3) as second:
        output, _ = second.communicate()
    assert second.returncode == 0, output
    assert f"resuming at step {stopped + 1}\n" in output
    assert f"step {stopped + 2}/{stopped + 3} loss " in output
    assert [path.name for path in tmp_path.iterdir()] == ["latest.pt"]
