"""Names: canonical before first use, so that two spellings are never two things."""

import re

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
RUN_NAME_MAX = 52
RANK_DIGITS_MOST = 9
UID = re.compile(r"[0-9a-f]{32}")
"""A run's identity, as the API gives it out."""


def canonical(name: str) -> str:
    """The one form of a name that is stored and looked up: without outer blanks, in lower case."""
    return name.strip().lower()


def name_fault(name: str, longest: int = 63) -> str | None:
    """What is wrong with a canonical name and what to do, or None when it is a DNS label of at most `longest`."""
    if len(name) > longest:
        return f"is {len(name)} characters long; use at most {longest}"
    if not DNS_LABEL.fullmatch(name):
        return "is not a DNS label; use lower-case letters, digits and '-', starting and ending with a letter or digit"
    return None


def worker_name(run: str, rank: int) -> str:
    """A worker's name, `<run>-<rank>`."""
    return f"{run}-{rank}"


def split_worker_name(worker: str) -> tuple[str, int] | None:
    """The run and rank of a worker's name, or None when it is not of that form."""
    run, dash, rank = canonical(worker).rpartition("-")
    good = dash and run and rank.isascii() and rank.isdigit() and len(rank) <= RANK_DIGITS_MOST
    return (run, int(rank)) if good else None
