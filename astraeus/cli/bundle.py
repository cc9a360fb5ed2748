"""A bug report: what the API shows of the workspace, without tokens, environments and file contents."""

import io
import json
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from astraeus.cli import output
from astraeus.cli.local import installed_version
from astraeus.cli.session import access, api

REDACTED = "[redacted]"
EVENTS_MOST = 5000
RUNS_MOST = 1000
SENSITIVE = ("token", "secret", "password", "passwd", "credential", "authorization", "api_key", "apikey")
HIDDEN = frozenset({"env", "value", "args"})
"""Fields of a specification that hold what users wrote; their shape is kept."""


def bundle(
    file: Annotated[Path | None, typer.Option("--file", "-o", help="The file to write.")] = None,
) -> None:
    """Write a bug report: a .tar.gz without tokens, environments, arguments and file contents."""
    from astraeus.client.errors import ApiError

    path = file or Path(time.strftime("astra-bundle-%Y%m%d-%H%M%S.tar.gz"))
    where = access()
    with api(where) as calls, tarfile.open(path, "x:gz") as archive:
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
        for name, read in parts.items():
            try:
                content = redacted(read(), where.token)
            except ApiError as error:
                content = {"error": error.detail, "status": error.status}
            _add(archive, f"{name}.json", content)
    output.say(f"{path} written: {', '.join(parts)}; look through it before you send it")


def _version() -> dict[str, str]:
    return {"astra": installed_version(), "python": sys.version, "platform": platform.platform()}


def _some(items: Iterator[Any], most: int) -> list[Any]:
    return list(items)[-most:]


def redacted(document: Any, token: str) -> Any:
    """A document without what users wrote into environments, arguments and files, nor anything named like a secret."""
    if isinstance(document, dict):
        return {key: _field(key, value, token) for key, value in document.items()}
    if isinstance(document, list):
        return [redacted(value, token) for value in document]
    return _text(document, token) if isinstance(document, str) else document


def _field(key: str, value: Any, token: str) -> Any:
    if key in HIDDEN:
        return _shape(value)
    if isinstance(value, str) and any(word in key.lower() for word in SENSITIVE):
        return REDACTED
    return redacted(value, token)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return dict.fromkeys(value, REDACTED)
    return [REDACTED] * len(value) if isinstance(value, list) else REDACTED


def _text(text: str, token: str) -> str:
    text = text.replace(token, REDACTED)
    if "://" in text and "@" in (parts := urlsplit(text)).netloc:
        text = text.replace(parts.netloc, parts.netloc.rpartition("@")[2])
    return text


def _add(archive: tarfile.TarFile, name: str, content: Any) -> None:
    data = json.dumps(content, indent=2).encode()
    entry = tarfile.TarInfo(f"astra-bundle/{name}")
    entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(data))
