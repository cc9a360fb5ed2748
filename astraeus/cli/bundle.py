"""A bug report: what the API shows of the workspace, without tokens, environments and file contents."""

import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from astraeus.cli import output
from astraeus.cli.local import installed_version
from astraeus.cli.session import USAGE, access, api

REDACTED = "[redacted]"
EVENTS_MOST = 5000
RUNS_MOST = 1000
SNAPSHOT = "snapshot"
SENSITIVE = ("token", "secret", "password", "passwd", "credential", "authorization", "api_key", "apikey")
KNOWN_LEAST = 6
"""Shorter values of an environment stand in ordinary words too."""
OUR_TOKEN = re.compile(r"\bast_[A-Za-z0-9]+_[A-Za-z0-9_-]+")
IN_URL = re.compile(r"://[^/\s@]*@")
HIDDEN = frozenset({"env", "value", "args"})
"""Fields of a specification that hold what users wrote; their shape is kept."""


def bundle(
    file: Annotated[Path | None, typer.Option("--file", "-o", help="The file to write.")] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Add the scheduler's whole input, for `astra plan`; for admins.")
    ] = False,
) -> None:
    """Write a bug report: a .tar.gz without tokens, environments, arguments and file contents."""
    path = file or Path(time.strftime("astra-bundle-%Y%m%d-%H%M%S.tar.gz"))
    where = access()
    with api(where) as calls, _private(path) as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        parts: dict[str, Callable[[], Any]] = {
            "version": _version,
            "config": lambda: {"api": where.api, "console": where.console, "source": where.source},
            "runs": lambda: _some(calls.runs(), RUNS_MOST),
            "events": lambda: _some(calls.events(), EVENTS_MOST),
            "machines": lambda: list(calls.machines()),
            "topology": calls.topology,
            "findings": calls.findings,
            "clusters": lambda: list(calls.clusters()),
        }
        contents = redacted({name: _read(read) for name, read in parts.items()}, {where.token})
        if snapshot:
            # As it is: it has names, labels and sizes only, and must give the same plan again.
            contents[SNAPSHOT] = _read(calls.snapshot)
        for name, content in contents.items():
            _add(archive, f"{name}.json", content)
    output.say(f"{path} written: {', '.join(contents)}; look through it before you send it")


def _read(read: Callable[[], Any]) -> Any:
    from astraeus.client.errors import ApiError

    try:
        return read()
    except ApiError as error:
        return {"error": error.detail, "status": error.status}


def _private(path: Path) -> BinaryIO:
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        output.note(f"astra: {path} cannot be written: {error.strerror}; name another with --file")
        raise typer.Exit(USAGE) from error


def _version() -> dict[str, str]:
    return {"astra": installed_version(), "python": sys.version, "platform": platform.platform()}


def _some(items: Iterator[Any], most: int) -> list[Any]:
    return list(items)[-most:]


def redacted(document: Any, known: Collection[str] = ()) -> Any:
    """A document without what users wrote into environments, arguments and files, by place, by name and by value.

    `known` are values to take out wherever they stand.
    """
    known = {*known, *_environment_values(document)}
    return _redacted(document, sorted(known, key=len, reverse=True))


def _environment_values(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "env" and isinstance(value, dict):
                yield from (text for text in value.values() if isinstance(text, str) and len(text) >= KNOWN_LEAST)
            else:
                yield from _environment_values(value)
    elif isinstance(document, list):
        for value in document:
            yield from _environment_values(value)


def _redacted(document: Any, known: Sequence[str]) -> Any:
    if isinstance(document, dict):
        return {key: _field(key, value, known) for key, value in document.items()}
    if isinstance(document, list):
        return [_redacted(value, known) for value in document]
    return _text(document, known) if isinstance(document, str) else document


def _field(key: str, value: Any, known: Sequence[str]) -> Any:
    if key in HIDDEN:
        return _shape(value)
    if isinstance(value, str) and any(word in key.lower() for word in SENSITIVE):
        return REDACTED
    return _redacted(value, known)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return dict.fromkeys(value, REDACTED)
    return [REDACTED] * len(value) if isinstance(value, list) else REDACTED


def _text(text: str, known: Sequence[str]) -> str:
    for value in known:
        text = text.replace(value, REDACTED)
    return IN_URL.sub(f"://{REDACTED}@", OUR_TOKEN.sub(REDACTED, text))


def _add(archive: tarfile.TarFile, name: str, content: Any) -> None:
    data = json.dumps(content, indent=2).encode()
    entry = tarfile.TarInfo(f"astra-bundle/{name}")
    entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(data))
