"""Reading a specification: every fault at once, each with a JSON pointer and a sentence that says what to do."""

import difflib
from collections.abc import Callable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from astraeus.model.errors import AstraeusError, Fault
from astraeus.model.names import RUN_NAME_MAX, canonical, name_fault
from astraeus.model.spec import CONFIG_BYTES_MAX, AnyMachine, NamedMachines, Submission

__all__ = ["BadSpec", "Fault", "faults_of", "parse_submission", "pointer"]

RESOURCES = ("spec", "task_template", "requested_resources")
ACTIONS = {
    "missing": "is missing; add it",
    "string_type": "must be a string; put it in quotes",
    "int_type": "must be a whole number without quotes",
    "float_type": "must be a number without quotes",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}


class BadSpec(AstraeusError):
    """A specification with faults; `faults` lists every one of them, in the order of their pointers."""

    code = "bad-spec"
    http_status = 422

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(f"{fault.pointer} {fault.message}" for fault in faults))
        self.faults = faults


def parse_submission(raw: object) -> Submission:
    """The submission in `raw` (decoded JSON). Raises `BadSpec` with every fault."""
    raw = _with_canonical_name(raw)
    faults = list(_cross_field_faults(raw))
    try:
        submission = Submission.model_validate(raw)
    except ValidationError as error:
        faults += faults_of(error, Submission)
    if faults:
        raise BadSpec(_ordered(faults))
    return submission


def faults_of(error: ValidationError, root: type[BaseModel]) -> list[Fault]:
    """Pydantic's complaints as faults; unknown fields name the nearest known one."""
    return [
        Fault(pointer(_json_path(item["loc"])), _sentence(dict(item), root))
        for item in error.errors(include_url=False)
        if not (
            item["loc"] == ("metadata", "name") and item["type"].startswith("string_") and item["type"] != "string_type"
        )
    ]


def pointer(path: tuple[str | int, ...]) -> str:
    """RFC 6901 pointer of a path."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _ordered(faults: list[Fault]) -> list[Fault]:
    return sorted(set(faults), key=lambda fault: (fault.pointer, fault.message))


def _with_canonical_name(raw: object) -> object:
    name = _at(raw, "metadata", "name")
    if isinstance(raw, dict) and isinstance(name, str):
        return {**raw, "metadata": {**raw["metadata"], "name": canonical(name)}}
    return raw


def _at(raw: object, *path: str) -> Any:
    for step in path:
        raw = raw.get(step) if isinstance(raw, dict) else None
    return raw


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _cross_field_faults(raw: object) -> Iterator[Fault]:
    for rule in CROSS_FIELD_RULES:
        yield from rule(raw)


def _name_rule(raw: object) -> Iterator[Fault]:
    name = _at(raw, "metadata", "name")
    if isinstance(name, str) and (fault := name_fault(name, RUN_NAME_MAX)):
        yield Fault("/metadata/name", fault)


def _shape_rule(raw: object) -> Iterator[Fault]:
    count = _whole(_at(raw, *RESOURCES, "gpu_requests", "count")) or 0
    machines = _whole(_at(raw, *RESOURCES, "machines"))
    least = _whole(_at(raw, *RESOURCES, "gpu_requests", "min_per_machine"))
    where = pointer((*RESOURCES, "gpu_requests", "count"))
    if machines and count > 0 and count % machines:
        below, above = count - count % machines, count + machines - count % machines
        hint = f"{below} or {above}" if below else f"{above}"
        yield Fault(
            where, f"is {count}, which does not divide by machines ({machines}); use {hint}, or change machines"
        )
    if machines and least:
        yield Fault(
            pointer((*RESOURCES, "gpu_requests", "min_per_machine")),
            "cannot be given together with machines; keep machines for an exact shape, or min_per_machine for a free one",
        )
    if least and not machines and count < least:
        yield Fault(where, f"is {count}, less than min_per_machine ({least}); raise it or lower min_per_machine")


def _start_rule(raw: object) -> Iterator[Fault]:
    start = _at(raw, "spec", "start") or "Gang"
    if _at(raw, "spec", "on_failure") == "RestartWorker" and start == "Gang":
        yield Fault("/spec/on_failure", "RestartWorker needs start: Independent; use RestartJob or Fail with a gang")


def _config_rule(raw: object) -> Iterator[Fault]:
    configs = _list(_at(raw, "spec", "task_template", "configs"))
    values = [config.get("value") for config in configs if isinstance(config, dict)]
    size = sum(len(value.encode("utf-8", "surrogatepass")) for value in values if isinstance(value, str))
    if size > CONFIG_BYTES_MAX:
        yield Fault(
            "/spec/task_template/configs",
            f"hold {size} bytes in sum; the limit is {CONFIG_BYTES_MAX} (1 MiB): put large files on a drive",
        )


def _mount_rule(raw: object) -> Iterator[Fault]:
    task = ("spec", "task_template")
    places: list[tuple[tuple[str | int, ...], object]] = []
    for i, drive in enumerate(_list(_at(raw, *task, "drives"))):
        places.append(((*task, "drives", i, "mount_path"), _at(drive, "mount_path")))
    for i, config in enumerate(_list(_at(raw, *task, "configs"))):
        places += [((*task, "configs", i, "mounts", j), path) for j, path in enumerate(_list(_at(config, "mounts")))]
    seen: dict[str, str] = {}
    for path, value in places:
        if not isinstance(value, str):
            continue
        if ".." in value.split("/"):
            yield Fault(pointer(path), "must not contain '..'; write the path it means")
        if value in seen:
            yield Fault(pointer(path), f"is {value}, already mounted by {seen[value]}; give each mount its own path")
        seen.setdefault(value, pointer(path))


def _secret_rule(raw: object) -> Iterator[Fault]:
    env = _at(raw, "spec", "task_template", "env")
    for i, name in enumerate(_list(_at(raw, "spec", "task_template", "secret_env"))):
        if isinstance(env, dict) and isinstance(name, str) and name in env:
            yield Fault(
                pointer(("spec", "task_template", "secret_env", i)), f"{name} is also in env; keep one of the two"
            )


CROSS_FIELD_RULES: tuple[Callable[[object], Iterator[Fault]], ...] = (
    _name_rule,
    _shape_rule,
    _start_rule,
    _config_rule,
    _mount_rule,
    _secret_rule,
)


def _json_path(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The path in the user's JSON: pydantic adds the tag of a union and '[key]' for a bad key."""
    tags = {"Any", "Named", "[key]", "constrained-int", "literal['unlimited']"}
    return tuple(step for i, step in enumerate(loc) if not (i and step in tags and loc[i - 1] in _TAGGED))


_TAGGED = {"machine_selection", "restart_budget"}


def _sentence(item: dict[str, Any], root: type[BaseModel]) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_field(item["loc"], root)
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(' or ', ', ')}"
    if kind == "too_long":
        return f"has {context['actual_length']} entries; use at most {context['max_length']}"
    if kind == "string_too_long":
        return f"is too long; use at most {context['max_length']} characters"
    if kind in ACTIONS:
        return ACTIONS[kind]
    message: str = item["msg"]
    return (
        message[0].lower()
        + message[1:].replace("Input should", "should").replace("input should", "should")
        + f"; got {item['input']!r:.60}"
    )


def _unknown_field(loc: tuple[str | int, ...], root: type[BaseModel]) -> str:
    known = _fields_at(loc[:-1], root)
    near = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.5)
    if near:
        return f"is not a known field; did you mean {near[0]}?"
    return f"is not a known field; known here: {', '.join(known)}"


def _fields_at(path: tuple[str | int, ...], root: type[BaseModel]) -> list[str]:
    model: type[BaseModel] = root
    for step in path:
        if step in ("Any", "Named"):
            model = NamedMachines if step == "Named" else AnyMachine
        elif isinstance(step, str) and step in model.model_fields:
            model = next(_models_in(model.model_fields[step].annotation), model)
    return list(model.model_fields)


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
