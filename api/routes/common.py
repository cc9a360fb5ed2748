"""Parameters that several routes share, and path segments that end at a colon."""

from typing import Annotated, Literal

from fastapi import Header, Path, Query
from starlette.convertors import Convertor, register_url_convertor

BASE = "/api/o/{org:segment}/w/{workspace:segment}"
AGENTS = "/agent/v1"
LABEL = r"^ *[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])? *$"
PLAIN = r"^[^\x00]*$"


class Segment(Convertor[str]):
    """A path segment up to a colon, so that `/runs/{name}` and `/runs/{name}:cancel` are different paths."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        """The text itself."""
        return value

    def to_string(self, value: str) -> str:
        """The text itself."""
        return value


register_url_convertor("segment", Segment())

Name = Annotated[str, Path(description="A name, in any spelling.")]
Run = Annotated[str, Path(description="A run's name, in any spelling, or its uid.")]
NewName = Annotated[str, Path(pattern=LABEL, description="A DNS label, in any spelling.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Cursor = Annotated[str | None, Query(max_length=512, pattern=PLAIN, description="`next_cursor` of the page before.")]
Cluster = Annotated[str | None, Query(max_length=63, pattern=PLAIN, description="Absent: the workspace's own.")]
Switch = Literal["1", "0", "true", "false"]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="The same key and body again return the same run.",
    ),
]


def on(switch: Switch) -> bool:
    """Whether a switch is on."""
    return switch in ("1", "true")
