"""A worker's log, byte for byte."""

import os
import sys
from typing import Annotated

import typer

from astraeus.cli.session import api


def logs(
    worker: Annotated[str, typer.Argument(metavar="WORKER", show_default=False, help="RUN-RANK: resnet-64gpu-0.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the worker has ended.")] = False,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Of this attempt; else the latest.")] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="Begin with this many last lines; else all.")
    ] = None,
) -> None:
    """Print the log of one worker, exactly as it was written."""
    with api() as calls, calls.logs(worker, attempt=attempt, tail=tail, follow=follow) as chunks:
        try:
            for chunk in chunks:
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
        except BrokenPipeError:
            # The reader (head, less) has had enough; nothing more may be written to it, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
