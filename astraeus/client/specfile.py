"""Specifications on disk, and changing single values of one: `spec.priority=5`."""

import json
import math
from pathlib import Path
from typing import Any

from astraeus.model.change import change, steps_of

STRING_MAPS = frozenset({"env", "labels", "match_labels"})


class BadChange(ValueError):
    """A change that cannot be made; the message says why."""


def read(path: Path | None, content: bytes = b"") -> Any:
    """The decoded JSON of a file, or of `content`; `BadChange` says where it is broken."""
    where = str(path) if path else "the standard input"
    try:
        return _decoded((path.read_bytes() if path else content).decode())
    except OSError as error:
        raise BadChange(f"{where} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadChange(f"{where} is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise BadChange(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except ValueError as error:
        raise BadChange(f"{where} has a number that is not finite, or is too long") from error
    except RecursionError as error:
        raise BadChange(f"{where} is nested too deeply") from error


def _decoded(text: str) -> Any:
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not finite")
    return number


def parse_change(text: str) -> tuple[str, Any]:
    """`path=value`: the value is JSON where it reads as JSON, else the text itself.

    What maps of strings hold is always text, so that `…env.STEPS=500` needs no second pair of quotes.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise BadChange(f"{text!r} is not PATH=VALUE, such as spec.priority=5")
    if STRING_MAPS.intersection(steps_of(path)[-2:-1]):
        return path, value
    try:
        return path, _decoded(value)
    except (ValueError, RecursionError):
        return path, value


def parse_label(text: str) -> tuple[str, str]:
    """`key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise BadChange(f"{text!r} is not KEY=VALUE, such as project=vision")
    return key, value


def apply(document: Any, path: str, value: Any) -> None:
    """Put `value` at `path` of `document` in place; null takes a value away."""
    if fault := change(document, path, value):
        raise BadChange(f"{path} {fault}")
