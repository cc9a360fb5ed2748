"""Changing single values of a document by their path, as templates and the command line do."""

from typing import Any

INDEX_DIGITS = 9


def steps_of(path: str) -> list[str]:
    """The steps of a JSON pointer (`/spec/priority`) or of names joined by dots (`spec.task_template.env.STEPS`)."""
    if path.startswith("/"):
        return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
    return path.split(".")


def change(document: Any, path: str, value: Any) -> str | None:
    """Put `value` at `path` in place, making objects on the way; None takes a value away from an object.

    Returns what is wrong with the path and what to do, or None.
    """
    *way, last = steps_of(path)
    place = document
    for step in way:
        if isinstance(place, list):
            index = _index(place, step)
            if index is None:
                return _no_entry(place, step)
            place = place[index]
        elif isinstance(place, dict):
            place = place.setdefault(step, {})
        else:
            return f"goes on after a plain value, at {step!r}; end the path before it"
    return _put(place, last, value)


def _put(place: Any, step: str, value: Any) -> str | None:
    if isinstance(place, list):
        index = _index(place, step)
        if index is None:
            return _no_entry(place, step)
        place[index] = value
    elif not isinstance(place, dict):
        return f"goes on after a plain value, at {step!r}; end the path before it"
    elif value is None:
        place.pop(step, None)
    else:
        place[step] = value
    return None


def _index(place: list[Any], step: str) -> int | None:
    if not (step.isascii() and step.isdigit()) or len(step) > INDEX_DIGITS:
        return None
    return int(step) if int(step) < len(place) else None


def _no_entry(place: list[Any], step: str) -> str:
    return f"has no entry {step!r}; the list has {len(place)}"
