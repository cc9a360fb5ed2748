"""The agent's line to the API: outbound HTTP only, with a token, limits on every wait, and patience."""

import asyncio
import logging
import random
from pathlib import Path
from typing import Any

import httpx

from astraeus.model.agent import Launch, SyncRequest, SyncResponse
from astraeus.model.errors import Away, Conflict, Invalid

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 2.0
PATIENCE = 5.0
"""Seconds for a connection, or for an answer beyond the wait asked for; silence is a loss only much later."""

LATER = frozenset({401, 408, 425, 429})
"""Refusals that a later call may not meet: a token being replaced, or too many calls."""

log = logging.getLogger("astraeus.agent")


class Backoff:
    """Pauses that double up to a bound, a little apart from those of other agents."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE

    def reset(self) -> None:
        """Start again from the shortest pause."""
        self._pause = FIRST_PAUSE

    async def wait(self) -> None:
        """Pause, and longer the next time."""
        await asyncio.sleep(self._pause * random.uniform(0.8, 1.0))
        self._pause = min(LONGEST_PAUSE, self._pause * 2)


class Link:
    """Calls of the agent protocol."""

    def __init__(self, api: str, token_file: Path) -> None:
        self._token_file = token_file
        self._client = httpx.AsyncClient(
            base_url=api.rstrip("/"),
            timeout=PATIENCE,
            limits=httpx.Limits(max_connections=16, max_keepalive_connections=8),
        )
        self.read_token()

    def read_token(self) -> None:
        """Take the token from its file, which may have been replaced since."""
        self._client.headers["authorization"] = f"Bearer {read_token(self._token_file)}"

    @property
    def authorization(self) -> str:
        """The header by which the API knows us."""
        return self._client.headers["authorization"]

    async def sync(self, request: SyncRequest) -> SyncResponse:
        """One sync. `Away` when a later one may work, `Conflict` when another agent has our machines."""
        response = await self._call(
            "POST",
            "/agent/v1/sync",
            content=request.model_dump_json(exclude_defaults=True),
            headers={"content-type": "application/json"},
            timeout=httpx.Timeout(PATIENCE, read=request.wait_seconds + PATIENCE),
        )
        if response.status_code == 409 and _code(response) == Conflict.code:
            raise Conflict(problem(response))
        if response.status_code != 200:
            raise Away(problem(response))
        try:
            return SyncResponse.model_validate_json(response.content)
        except ValueError as fault:
            raise Away(f"the API's answer is not of this protocol: {fault}") from fault

    async def launch(self, run_uid: str, attempt: int) -> Launch:
        """What an attempt runs, asked for until the API answers; `Invalid` when it refuses."""
        backoff = Backoff()
        while True:
            try:
                response = await self._call("GET", f"/agent/v1/launch/{run_uid}/{attempt}")
                if response.status_code == 200:
                    return Launch.model_validate_json(response.content)
                if 400 <= response.status_code < 500 and response.status_code not in LATER:
                    raise Invalid(problem(response))
                log.warning("no launch of %s/%s yet: %s", run_uid, attempt, problem(response))
            except Away as fault:
                log.warning("no launch of %s/%s yet: %s", run_uid, attempt, fault)
            except ValueError as fault:
                raise Invalid("the API's launch is not of this agent's protocol; update the agent") from fault
            await backoff.wait()

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = await self._client.request(method, path, **options)
        except (httpx.HTTPError, httpx.StreamError) as fault:
            raise Away(f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__) from fault
        if response.status_code == 401:
            self.read_token()
        return response

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()


def read_token(path: Path) -> str:
    """The token in a file that nobody else can read."""
    try:
        mode = path.stat().st_mode & 0o077
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise Invalid(f"cannot read the token file {path}: {fault}") from fault
    if mode:
        raise Invalid(f"others can read the token file {path}; chmod 600 it")
    if not token or any(character.isspace() for character in token):
        raise Invalid(f"the token file {path} does not hold one token")
    return token


def problem(response: httpx.Response) -> str:
    """The sentence of a problem document, or what there is instead."""
    content = _document(response)
    for name in ("detail", "title"):
        if isinstance(content.get(name), str):
            return str(content[name])
    return f"the API answered {response.status_code}"


def _code(response: httpx.Response) -> object:
    return _document(response).get("code")


def _document(response: httpx.Response) -> dict[str, Any]:
    try:
        content = response.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
