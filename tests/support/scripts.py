"""What gangs of the stack's tests run, and what is told of their attempts."""

from pathlib import Path

from support.stack import DevStack


def until(flag: Path) -> str:
    """A script that runs until a file exists, or it is told to stop."""
    return f"trap 'exit 0' TERM; until test -e {flag}; do sleep 0.1; done"


def deaf(flag: Path) -> str:
    """A script that runs until a file exists, and ignores SIGTERM."""
    return f"trap '' TERM; until test -e {flag}; do sleep 0.1; done"


def attempts(stack: DevStack, name: str) -> list[tuple[int, str | None, bool]]:
    """Number, cause and charge of every attempt."""
    items = stack.api("GET", f"/runs/{name}/attempts").json()["items"]
    return [(item["attempt"], item["cause"], item["charged"]) for item in items]
