"""One member of a chaos gang: `member.py FOLDER PLAN`. It writes down what it does, as ground truth for the judge.

`FOLDER/<run>/<attempt>.<rank>` gets a line for each event, and its modification time is the last sign of life. Steps
are kept in a checkpoint per rank, which only the newest attempt may write.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

STEP_SECONDS = 0.1
SAVE_EVERY = 5
KEY = "ASTRAEUS_WORKER_KEY"


class Member:
    """The member's files and its plan."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        key, _, host = os.environ[KEY].partition("@")
        self.uid, attempt, rank = key.split("/")
        self.attempt, self.rank, self.machine = int(attempt), int(rank), Path(host).name
        self.home, self.plan = folder / os.environ["ASTRAEUS_RUN_NAME"], plan
        self.home.mkdir(parents=True, exist_ok=True)
        self.diary = self.home / f"{self.attempt}.{self.rank}"
        self.kept = self.home / f"ckpt.{self.rank}"
        self.stopping = False

    def note(self, event: str, **more: Any) -> None:
        line = {"event": event, "at": time.time(), "uid": self.uid, "machine": self.machine, **more}
        with self.diary.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")

    def stop(self, *_: object) -> None:
        self.stopping = not self.plan["deaf"]
        self.note("term")

    def last(self) -> dict[str, int]:
        try:
            found: dict[str, int] = json.loads(self.kept.read_text())
        except FileNotFoundError:
            return {"attempt": 0, "step": 0}
        return found

    def save(self, step: int) -> None:
        newest = self.last()["attempt"]
        if newest > self.attempt:
            self.note("superseded", by=newest)
            sys.exit(9)
        new = self.kept.with_suffix(f".{self.rank}.{self.attempt}.new")
        new.write_text(json.dumps({"attempt": self.attempt, "step": step}))
        new.replace(self.kept)

    def fails_now(self) -> bool:
        if self.rank != self.plan["fail_rank"]:
            return False
        return len(list(self.home.glob("failed.*"))) < self.plan["fails"]

    def train(self) -> None:
        first = step = self.last()["step"]
        while step < self.plan["steps"] and not self.stopping:
            time.sleep(STEP_SECONDS)
            step += 1
            os.utime(self.diary)
            if step % SAVE_EVERY == 0:
                self.save(step)
            if step - first >= self.plan["fail_after"] and self.fails_now():
                (self.home / f"failed.{self.attempt}").touch()
                self.note("fail")
                sys.exit(3)
        self.save(step)
        self.note("stopped" if self.stopping else "done", step=step)


def main() -> None:
    member = Member(Path(sys.argv[1]), json.loads(sys.argv[2]))
    signal.signal(signal.SIGTERM, member.stop)
    member.note("begin", pid=os.getpid(), gpus=os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    member.train()


if __name__ == "__main__":
    main()
