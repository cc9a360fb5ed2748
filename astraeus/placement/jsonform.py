"""The planner's whole input and output as JSON, so that a pass can be repeated elsewhere."""

from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from astraeus.model.errors import Invalid
from astraeus.placement.types import Plan, Snapshot

FORMAT: Literal["astraeus-snapshot/1"] = "astraeus-snapshot/1"


@dataclass(frozen=True, slots=True)
class Input:
    """What `planner.plan` is called with, and the form it is written in."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="constants")

    snapshot: Snapshot
    now: float
    format: Literal["astraeus-snapshot/1"] = FORMAT


_INPUT = TypeAdapter(Input)
_PLAN = TypeAdapter(Plan)


def write_input(snapshot: Snapshot, now: float) -> bytes:
    """A pass's input as JSON."""
    return _INPUT.dump_json(Input(snapshot, now))


def read_input(text: bytes | str) -> Input:
    """What `write_input` wrote; `Invalid` names the first thing that is wrong with it."""
    try:
        return _INPUT.validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = "/".join(str(part) for part in fault["loc"]) or "the file"
        raise Invalid(f"This is no snapshot of the form {FORMAT}: {place}: {fault['msg']}") from None


def write_plan(plan: Plan) -> bytes:
    """A plan as JSON."""
    return _PLAN.dump_json(plan)


def read_plan(text: bytes | str) -> Plan:
    """What `write_plan` wrote."""
    return _PLAN.validate_json(text)
