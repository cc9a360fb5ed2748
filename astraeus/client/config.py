"""Where the API is and what token to use: flags, environment, a local `astra dev`, then the file of `astra login`."""

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from astraeus.client.errors import NotConfigured

API_VARIABLE = "ASTRALYX_API"
TOKEN_VARIABLE = "ASTRALYX_TOKEN"
DIR_VARIABLE = "ASTRAEUS_DIR"


@dataclass(frozen=True)
class Access:
    """An API base, the token for it, the console's address, and where each came from."""

    api: str
    token: str
    console: str
    source: str

    @property
    def workspace_path(self) -> str:
        """`/o/<org>/w/<workspace>`, as the API base and the console's pages share it."""
        path = urlsplit(self.api).path
        return path[path.index("/o/") :] if "/o/" in path else ""

    def run_page(self, cluster: str, run: str) -> str:
        """The console's page of a run."""
        return f"{self.console}{self.workspace_path}/runs/{cluster}/{run}"


def default_dir() -> Path:
    """The state directory of `astra dev`, where its dev.json is: `ASTRAEUS_DIR`, or the user's state directory."""
    if given := os.environ.get(DIR_VARIABLE):
        return Path(given)
    import platformdirs

    return Path(platformdirs.user_state_dir("astraeus")) / "dev"


def config_file() -> Path:
    """The file `astra login` writes."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "astra" / "config.toml"


def load(api: str | None = None, token: str | None = None) -> Access:
    """The first address found, with a token given for it.

    A stored token goes only to the address it is stored with, so that naming another server never sends it there.
    """
    dev, stored = _read_dev(), _read_config()
    sources = [
        ("--api", api, None),
        (API_VARIABLE, os.environ.get(API_VARIABLE), None),
        (str(default_dir() / "dev.json"), dev.get("api"), dev.get("token")),
        (str(config_file()), stored.get("api"), stored.get("token")),
    ]
    source, base, _ = next((item for item in sources if item[1]), ("", None, None))
    if not base:
        raise NotConfigured(
            f"no API address: run `astra login`, start `astra dev`, or set {API_VARIABLE} and {TOKEN_VARIABLE}"
        )
    base = base.rstrip("/")
    kept = next((key for _, url, key in sources if url and key and url.rstrip("/") == base), None)
    token = token or os.environ.get(TOKEN_VARIABLE) or kept
    if not token:
        raise NotConfigured(f"no token for {base} (from {source}): run `astra login`, or set {TOKEN_VARIABLE}")
    console = dev.get("console") if str(dev.get("api", "")).rstrip("/") == base else None
    return Access(api=base, token=token, console=_console(console, base), source=source)


def save(api: str, token: str) -> Path:
    """Keep an address and its token for later calls, readable by the user only."""
    path = config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f"api = {json.dumps(api)}\ntoken = {json.dumps(token)}\n"
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.replace(path)
    return path


def _console(given: str | None, api: str) -> str:
    parts = urlsplit(given or api)
    prefix = parts.path.split("/o/")[0].rstrip("/") if given else ""
    return f"{parts.scheme}://{parts.netloc}{prefix}"


def _read_dev() -> dict[str, Any]:
    try:
        document = json.loads((default_dir() / "dev.json").read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _read_config() -> dict[str, Any]:
    path = config_file()
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise NotConfigured(f"{path} cannot be read ({error}): run `astra login` to write it anew") from error
