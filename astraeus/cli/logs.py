"""A worker's log, byte for byte."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from astraeus.cli import output
from astraeus.cli.patience import patiently
from astraeus.cli.session import api
from astraeus.model.names import split_worker_name, worker_name

if TYPE_CHECKING:
    from astraeus.client.api import Api


def logs(
    worker: Annotated[str, typer.Argument(metavar="WORKER", show_default=False, help="RUN-RANK: resnet-64gpu-0.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the worker has ended.")] = False,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Of this attempt; else the latest.")] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="Begin with this many last lines; else all.")
    ] = None,
) -> None:
    """Print the log of one worker, exactly as it was written."""
    try:
        with api() as calls:
            if follow:
                Follower(calls, worker, attempt, tail).run()
            else:
                with calls.logs(worker, attempt=attempt, tail=tail) as chunks:
                    for chunk in chunks:
                        _write(chunk)
    except BrokenPipeError:
        # The reader (head, less) has had enough; nothing more may be written to it, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Follower:
    """One attempt's log until its worker has ended, through absences of the server."""

    def __init__(self, calls: "Api", worker: str, attempt: int | None, tail: int | None) -> None:
        self._calls, self._worker, self._attempt, self._tail = calls, worker, attempt, tail
        self._written = 0

    def run(self) -> None:
        """Write it all."""
        parts = split_worker_name(self._worker)
        if self._attempt is None and parts:
            # Named, so that a connection made again goes on with the same attempt of the same run.
            run = self._calls.run(parts[0])
            own = [worker for worker in run["workers"] if worker["rank"] == parts[1] and worker["machine"]]
            # An attempt that waits for room has no log yet; the one before it is the last that does.
            self._attempt = int(own[0]["attempt"] if own else max(0, run["attempt"] - 1)) or None
            self._worker = worker_name(run["metadata"]["uid"], parts[1])
        patiently(self._once)

    def _once(self) -> None:
        skip, tail = self._written, self._tail
        if skip and tail is not None:
            output.note("astra: connected again; lines may be missing here")
            skip, tail = 0, 0
        with self._calls.logs(self._worker, attempt=self._attempt, tail=tail, follow=True) as chunks:
            for chunk in chunks:
                rest, skip = chunk[skip:], max(0, skip - len(chunk))
                _write(rest)
                self._written += len(rest)


def _write(chunk: bytes) -> None:
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
