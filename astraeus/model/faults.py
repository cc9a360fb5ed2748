"""Reading a specification: every fault at once, each with a JSON pointer and a sentence that says what to do."""

import difflib
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from astraeus.model.errors import AstraeusError, Fault
from astraeus.model.rules import Path, cross_field_faults, pointer, too_large
from astraeus.model.spec import NO_NUL, PATTERNS, AnyMachine, NamedMachines, Submission

__all__ = ["BadSpec", "Fault", "faults_of", "parse_submission", "pointer"]

FAULTS_MOST = 200
"""More than anyone corrects in one go; a body of garbage must not become a larger answer."""

ACTIONS = {
    "missing": "is missing; add it",
    "string_type": "must be a string; put it in quotes",
    "string_unicode": "holds half of a surrogate pair; send whole characters",
    "int_type": "must be a whole number without quotes",
    "float_type": "must be a number without quotes",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "union_tag_not_found": 'is missing mode; add "mode": "Any" or "mode": "Named"',
}
LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
BUDGET = 'must be a whole number from 0 to 1000000 without quotes, or "unlimited"'
SELECTION_TAGS = ("Any", "Named")
KEY = "[key]"


class BadSpec(AstraeusError):
    """A specification with faults; `faults` lists every one of them, in the order of their pointers."""

    code = "bad-spec"
    http_status = 422

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(f"{fault.pointer or 'the body'} {fault.message}" for fault in faults))
        self.faults = faults


def parse_submission(raw: object) -> Submission:
    """The submission in `raw` (decoded JSON). Raises `BadSpec` with every fault, up to a number nobody reads."""
    oversized = dict(too_large(raw))
    for path in oversized:
        raw = _emptied(raw, path)
    faults = [*oversized.values(), *cross_field_faults(raw)]
    try:
        submission = Submission.model_validate(raw)
    except ValidationError as error:
        faults += faults_of(error, Submission)
    if faults:
        raise BadSpec(_ordered(faults))
    return submission


def faults_of(error: ValidationError, root: type[BaseModel]) -> list[Fault]:
    """Pydantic's complaints as faults; unknown fields name the nearest known one."""
    items = [item for item in error.errors(include_url=False) if not _said_by_a_rule(item["loc"], item["type"])]
    faults = [
        Fault(pointer(_json_path(item["loc"])), _sentence(dict(item), root)) for item in islice(items, FAULTS_MOST)
    ]
    if len(items) > FAULTS_MOST:
        faults.append(Fault("", f"has {len(items) - FAULTS_MOST} more faults; correct these first"))
    return faults


def _said_by_a_rule(loc: Path, kind: str) -> bool:
    return loc == ("metadata", "name") and kind in {"string_too_long", "string_pattern_mismatch"}


def _ordered(faults: list[Fault]) -> list[Fault]:
    return sorted(set(faults), key=lambda fault: (fault.pointer, fault.message))


def _emptied(raw: Any, path: tuple[str, ...]) -> Any:
    first, *rest = path
    return {**raw, first: _emptied(raw[first], tuple(rest)) if rest else {}}


def _json_path(loc: Path) -> Path:
    """The path in the user's JSON: pydantic adds the tag of a union, and `[key]` where a map's key is bad."""
    steps: list[str | int] = []
    for i, step in enumerate(loc):
        before = loc[i - 1] if i else None
        if before == "restart_budget" or (before == "machine_selection" and step in SELECTION_TAGS):
            continue
        steps.append(step)
    return tuple(steps[:-1] if _is_key(loc) else steps)


def _is_key(loc: Path) -> bool:
    return len(loc) > 2 and loc[-1] == KEY and loc[-3] in {"labels", "match_labels", "env"}


def _sentence(item: dict[str, Any], root: type[BaseModel]) -> str:
    loc, kind, context = item["loc"], item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_field(loc, root)
    if "restart_budget" in loc:
        return BUDGET
    if kind == "literal_error":
        return f"must be one of {_choices(context['expected'])}; it is {_short(item['input'])}"
    if kind == "union_tag_invalid":
        return f"has a mode of {_short(item['input']['mode'])}; use {context['expected_tags'].replace(', ', ' or ')}"
    if kind in ACTIONS:
        return ACTIONS[kind]
    name = "its name " if _is_key(loc) else ""
    return name + (_size(item) or _other(item))


def _choices(expected: str) -> str:
    return expected.replace(" or ", ", ")


def _size(item: dict[str, Any]) -> str | None:
    """What is too long, too short, too small or too large."""
    kind, context, value = item["type"], item.get("ctx", {}), item["input"]
    if kind in LIMITS:
        bound, words = LIMITS[kind]
        return f"is {_short(value)}; use {words} {context[bound]}" if bound in context else None
    if kind == "too_long":
        return f"has {len(value)} entries; use at most {context['max_length']}"
    if kind == "too_short":
        return f"has {len(value)} entries; give at least {context['min_length']}"
    if kind == "string_too_long":
        return f"is {len(value)} characters long; use at most {context['max_length']}"
    if kind == "string_too_short":
        return "is empty; write something"
    return None


def _other(item: dict[str, Any]) -> str:
    pattern = item["ctx"]["pattern"] if item["type"] == "string_pattern_mismatch" else None
    if pattern == NO_NUL:
        # What such a text says may be a secret, so it is not said again.
        return "holds a NUL character; take it out"
    if pattern in PATTERNS:
        return f"is {_short(item['input'])}; {PATTERNS[pattern]}"
    message = re.sub(r"^(Input|String|Value) should", "should", item["msg"])
    return f"{message[0].lower()}{message[1:]}; it is {_short(item['input'])}"


def _short(value: object) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _unknown_field(loc: Path, root: type[BaseModel]) -> str:
    known, name = _fields_at(loc[:-1], root), str(loc[-1])
    plain = {_plain(field): field for field in known}
    near = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.6) if len(name) <= 100 else []
    if near:
        return f"is not a known field; did you mean {plain[near[0]]}?"
    elsewhere = [place for place in _places(root) if place[-1] == name and place[:-1] != _json_path(loc[:-1])]
    if elsewhere:
        return f"is not a field of this part; it belongs at {' or '.join(map(pointer, elsewhere))}"
    return f"is not a known field; known here: {', '.join(known)}"


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _fields_at(path: Path, root: type[BaseModel]) -> list[str]:
    model: type[BaseModel] = root
    for step in path:
        if step in SELECTION_TAGS:
            model = NamedMachines if step == "Named" else AnyMachine
        elif isinstance(step, str) and step in model.model_fields:
            model = next(_models_in(model.model_fields[step].annotation), model)
    return list(model.model_fields)


def _places(model: type[BaseModel], here: Path = ()) -> Iterator[Path]:
    """The path of every field outside lists."""
    for name, field in model.model_fields.items():
        yield (*here, name)
        if not _in_list(field.annotation):
            for part in _models_in(field.annotation):
                yield from _places(part, (*here, name))


def _in_list(annotation: object) -> bool:
    return getattr(annotation, "__origin__", None) is list or any(map(_in_list, get_args(annotation)))


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
