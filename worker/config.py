"""Configuration of the processes, from the environment; Temporal's own comes from its environment configuration.

ASTRAEUS_LEDGER_URL      `sqlite+aiosqlite:///…` or `postgresql+asyncpg://…`
ASTRAEUS_KEYS_FILE       file with the keys that seal payloads and secrets, mode 600 (`Cipher.from_text`)
ASTRAEUS_TASK_QUEUE      Temporal task queue, default `astraeus`
ASTRAEUS_PUBLIC_URL      where users reach the API and console
ASTRAEUS_REPLICA_URL     where agents reach this API process, default the public URL
ASTRAEUS_TEMPORAL_UI     address of Temporal's web UI, for links
ASTRAEUS_CODEC_ORIGIN    origin of a Temporal UI that may have payloads decoded; unset: none
ASTRAEUS_LISTEN          host:port of the API, default 127.0.0.1:8480
"""

import logging
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from astraeus.ledger.cipher import Cipher
from astraeus.model.errors import Invalid

PREFIX = "ASTRAEUS_"
LISTEN = "127.0.0.1:8480"


class Settings(BaseModel):
    """One process's settings; see the module for what each means."""

    model_config = ConfigDict(frozen=True)

    ledger_url: str
    keys_file: Path
    task_queue: str = "astraeus"
    public_url: str = f"http://{LISTEN}"
    replica_url: str = ""
    temporal_ui: str | None = None
    codec_origin: str | None = None
    listen: str = LISTEN
    log_level: str = "INFO"

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the settings. Raises `Invalid` naming each variable that is missing."""
        found = {name: os.environ[key] for name in cls.model_fields if (key := PREFIX + name.upper()) in os.environ}
        missing = [PREFIX + name.upper() for name in ("ledger_url", "keys_file") if name not in found]
        if missing:
            raise Invalid(f"set {' and '.join(missing)}; see the operators' guide")
        settings = cls.model_validate(found)
        return settings if settings.replica_url else settings.model_copy(update={"replica_url": settings.public_url})

    def cipher(self) -> Cipher:
        """The cipher of the keys file. Raises `Invalid` when the file cannot be read."""
        try:
            return Cipher.from_text(self.keys_file.read_text())
        except (OSError, ValueError) as error:
            raise Invalid(f"cannot use the keys in {self.keys_file}: {error}") from error


def log_to_stderr(level: str) -> None:
    """One line an entry, to stderr; libraries that tell of their every step only warn."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in ("alembic", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
