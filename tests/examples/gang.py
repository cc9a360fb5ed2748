"""A gang of real trainer processes on loopback."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRAINER = Path(__file__).parents[2] / "deploy/examples/train_numpy.py"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Gang:
    """Members with one environment; output of each in a file of its own."""

    def __init__(self, directory: Path, world: int, **env: object) -> None:
        self.directory, self.world = directory, world
        self.env = {
            **os.environ,
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "ASTRAEUS_RUN_NAME": "resnet",
            "ASTRAEUS_ATTEMPT": "1",
            "ASTRAEUS_GPU_COUNT": "2",
            "CKPT_DIR": str(directory / "ckpt"),
            "LOG_EVERY": "1",
            "PEER_SECONDS": "60",
            **{name: str(value) for name, value in env.items()},
        }
        self.members: dict[int, subprocess.Popen[str]] = {}

    @property
    def checkpoint(self) -> Path:
        return Path(self.env["CKPT_DIR"]) / "latest.npz"

    def start(self, *ranks: int, **env: object) -> None:
        for rank in ranks or range(self.world):
            more = {"RANK": str(rank), **{name: str(value) for name, value in env.items()}}
            self.members[rank] = subprocess.Popen(
                [sys.executable, str(TRAINER)],
                env={**self.env, **more},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def wait_for(self, words: str, rank: int = 0) -> str:
        """The first line of a member's output with these words; its end without them is an error."""
        stream = self.members[rank].stdout
        assert stream is not None
        seen = []
        for line in stream:
            seen.append(line)
            if words in line:
                return line.strip()
        raise AssertionError(f"rank {rank} ended without {words!r}:\n{''.join(seen)}")

    def end(self) -> tuple[dict[int, int], dict[int, str]]:
        """Wait for all members; their exit codes, and what they printed that was not read yet."""
        output = {rank: member.communicate()[0] for rank, member in self.members.items()}
        return {rank: member.returncode for rank, member in self.members.items()}, output

    def signal(self, number: signal.Signals, *ranks: int) -> None:
        for rank in ranks:
            self.members[rank].send_signal(number)


@contextmanager
def gang(directory: Path, world: int, **env: object) -> Iterator[Gang]:
    """A gang of which nothing is left at the end."""
    made = Gang(directory, world, **env)
    try:
        yield made
    finally:
        for member in made.members.values():
            member.kill()
            member.wait()
            if member.stdout is not None:
                member.stdout.close()
