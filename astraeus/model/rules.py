"""Rules of a specification that no single field can state; they look at what users wrote, whatever it is."""

import posixpath
from collections.abc import Callable, Iterator
from typing import Any

from astraeus.model.errors import Fault
from astraeus.model.independent import WORKERS_MOST
from astraeus.model.names import RUN_NAME_MAX, canonical, name_fault
from astraeus.model.spec import CONFIG_BYTES_MAX, ENV_MAX, LABELS_MAX

TASK = ("spec", "task_template")
RESOURCES = (*TASK, "requested_resources")
GPUS = (*RESOURCES, "gpu_requests")
SELECTION = (*RESOURCES, "machine_selection")
MAPS = {("metadata", "labels"): LABELS_MAX, (*SELECTION, "match_labels"): LABELS_MAX, (*TASK, "env"): ENV_MAX}
"""How many entries each map may have."""

Path = tuple[str | int, ...]


def pointer(path: Path) -> str:
    """RFC 6901 pointer of a path."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def cross_field_faults(raw: object) -> list[Fault]:
    """Everything these rules find wrong with a submission."""
    return [fault for rule in RULES for fault in rule(raw)]


def too_large(raw: object) -> Iterator[tuple[tuple[str, ...], Fault]]:
    """The maps with too many entries, which must not be looked at one entry at a time."""
    for path, most in MAPS.items():
        found = at(raw, *path)
        if isinstance(found, dict) and len(found) > most:
            yield path, Fault(pointer(path), f"has {len(found)} entries; use at most {most}")


def at(raw: object, *path: str) -> Any:
    """What users wrote at a path, None where there is nothing."""
    for step in path:
        raw = raw.get(step) if isinstance(raw, dict) else None
    return raw


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _name_rule(raw: object) -> Iterator[Fault]:
    name = at(raw, "metadata", "name")
    if isinstance(name, str) and (fault := name_fault(canonical(name), RUN_NAME_MAX)):
        yield Fault("/metadata/name", fault)


def _shape_rule(raw: object) -> Iterator[Fault]:
    count = _whole(at(raw, *GPUS, "count")) or 0
    machines = _whole(at(raw, *RESOURCES, "machines"))
    least = _whole(at(raw, *GPUS, "min_per_machine"))
    where = pointer((*GPUS, "count"))
    if machines and machines > 0 and count > 0 and count % machines:
        below, above = count - count % machines, count + machines - count % machines
        hint = f"{below} or {above}" if below else f"{above}"
        yield Fault(
            where, f"is {count}, which does not divide by machines ({machines}); use {hint}, or change machines"
        )
    if machines and least and not _independent(raw):
        yield Fault(
            pointer((*GPUS, "min_per_machine")),
            "cannot be given together with machines; keep machines for an exact shape, "
            "or min_per_machine for a free one",
        )
    if least and not machines and 0 <= count < least and not _independent(raw):
        yield Fault(where, f"is {count}, less than min_per_machine ({least}); raise it or lower min_per_machine")


def _named_rule(raw: object) -> Iterator[Fault]:
    machines = _whole(at(raw, *RESOURCES, "machines"))
    names = {canonical(name) for name in _list(at(raw, *SELECTION, "machines")) if isinstance(name, str)}
    if machines and names and len(names) < machines and not _independent(raw):
        yield Fault(
            pointer((*SELECTION, "machines")),
            f"names {len(names)} of the {machines} machines the run needs; name more, or lower machines",
        )


def _start_rule(raw: object) -> Iterator[Fault]:
    start = at(raw, "spec", "start") or "Gang"
    if at(raw, "spec", "on_failure") == "RestartWorker" and start == "Gang":
        yield Fault(
            "/spec/on_failure", "is RestartWorker, which needs start: Independent; use RestartJob or Fail with a gang"
        )


def _independent(raw: object) -> bool:
    return bool(at(raw, "spec", "start") == "Independent")


def _independent_rule(raw: object) -> Iterator[Fault]:
    """Workers that start one by one are counted before anyone is placed."""
    if not _independent(raw):
        return
    machines = at(raw, *RESOURCES, "machines")
    if machines is None:
        yield Fault(
            pointer((*RESOURCES, "machines")), "is missing; with start: Independent give the number of workers here"
        )
    elif (number := _whole(machines)) and number > WORKERS_MOST:
        yield Fault(
            pointer((*RESOURCES, "machines")),
            f"is {number}; with start: Independent use at most {WORKERS_MOST}, and several runs for more workers",
        )
    if at(raw, *GPUS, "min_per_machine") is not None:
        yield Fault(
            pointer((*GPUS, "min_per_machine")),
            "cannot be used with start: Independent, where every worker's part is fixed; take it out and give machines",
        )


def _config_rule(raw: object) -> Iterator[Fault]:
    configs = _list(at(raw, *TASK, "configs"))
    values = [config.get("value") for config in configs if isinstance(config, dict)]
    size = sum(len(value.encode("utf-8", "surrogatepass")) for value in values if isinstance(value, str))
    if size > CONFIG_BYTES_MAX:
        yield Fault(
            pointer((*TASK, "configs")),
            f"hold {size} bytes in sum; the limit is {CONFIG_BYTES_MAX} (1 MiB): put large files on a drive",
        )


def _mount_rule(raw: object) -> Iterator[Fault]:
    places: list[tuple[Path, object]] = []
    for i, drive in enumerate(_list(at(raw, *TASK, "drives"))):
        places.append(((*TASK, "drives", i, "mount_path"), at(drive, "mount_path")))
    for i, config in enumerate(_list(at(raw, *TASK, "configs"))):
        places += [((*TASK, "configs", i, "mounts", j), path) for j, path in enumerate(_list(at(config, "mounts")))]
    seen: dict[str, str] = {}
    for path, value in places:
        if not isinstance(value, str) or not value.startswith("/") or value.endswith("/"):
            continue
        plain = "/" + posixpath.normpath(value).lstrip("/")
        if plain != value:
            yield Fault(pointer(path), f"is not a plain path; write {plain}")
        elif value in seen:
            yield Fault(pointer(path), f"is {value}, already mounted by {seen[value]}; give each mount its own path")
        seen.setdefault(plain, pointer(path))


def _secret_rule(raw: object) -> Iterator[Fault]:
    env = at(raw, *TASK, "env")
    for i, name in enumerate(_list(at(raw, *TASK, "secret_env"))):
        if isinstance(env, dict) and isinstance(name, str) and name in env:
            yield Fault(pointer((*TASK, "secret_env", i)), f"{name} is also in env; keep one of the two")


RULES: tuple[Callable[[object], Iterator[Fault]], ...] = (
    _name_rule,
    _shape_rule,
    _named_rule,
    _start_rule,
    _independent_rule,
    _config_rule,
    _mount_rule,
    _secret_rule,
)
