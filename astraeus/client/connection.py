"""HTTP to one API base: authentication, bounded retries of what is safe to repeat, streams and pages."""

import ipaddress
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from astraeus.client.errors import NOT_TEXT, SERVER_AWAY, ApiError, NotConfigured, Unsendable, from_problem

RETRY_PAUSES = (0.2, 0.6, 1.5)
"""Seconds before the second, third and fourth try."""
RETRY_STATUSES = frozenset({429, 502, 503, 504})
RETRY_AFTER_MOST = 5.0
PAGE = 200

Json = Any
Params = Mapping[str, str | int | list[str] | None]


class Connection:
    """Calls to one API base with one token. `timeout` in seconds bounds each try."""

    def __init__(
        self,
        base: str,
        token: str,
        timeout: float = 30.0,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        if not (token.isascii() and token.isprintable()):
            raise NotConfigured("the token has characters in it that no token has")
        self.base = base.rstrip("/")
        self._pause = pause
        self._timeout = timeout
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token}", "User-Agent": "astra", "Accept": "application/json"},
            timeout=timeout,
            # A proxy of the environment cannot reach this computer's loopback.
            trust_env=not is_loopback(self.base),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the pooled sockets."""
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Json = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> Json:
        """The decoded answer, None when it is empty.

        `repeatable` calls are tried again when the answer was lost or the server is briefly away; others only
        when the connection was never made. Reads and PUT are repeatable by default.
        """
        safe = method in {"GET", "PUT"} if repeatable is None else repeatable
        request = self._request(method, path, params=_clean(params), json=body, headers=dict(headers or {}))
        response = self._with_retries(request, safe)
        return _decoded(response)

    def pages(self, path: str, params: Params | None = None, most: int | None = None) -> Iterator[dict[str, Any]]:
        """The items of a list, page after page, `most` at most."""
        cursor: str | None = None
        left = most
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = self.call("GET", path, params={**(params or {}), "limit": size, "cursor": cursor})
            items = page["items"][:left]
            yield from items
            left = None if left is None else left - len(items)
            cursor = page.get("next_cursor")
            if not cursor:
                return

    @contextmanager
    def stream(self, path: str, params: Params | None = None, *, endless: bool = False) -> Iterator[httpx.Response]:
        """The answer as it arrives; `endless` ones may pause for any time between two bytes."""
        timeout = httpx.Timeout(self._timeout, read=None if endless else self._timeout)
        request = self._request("GET", path, params=_clean(params), headers={"Accept": "*/*"}, timeout=timeout)
        response = self._with_retries(request, safe=True, stream=True)
        try:
            if response.is_error:
                response.read()
            yield _checked(response)
        except httpx.TransportError as error:
            raise self._away(error) from error
        finally:
            response.close()

    def _request(self, method: str, path: str, **options: Any) -> httpx.Request:
        try:
            return self._http.build_request(method, self.base + path, **options)
        except UnicodeEncodeError as error:
            raise Unsendable(NOT_TEXT) from error
        except (ValueError, RecursionError, httpx.InvalidURL) as error:
            raise Unsendable(f"what was given cannot be sent: {error}") from error

    def _with_retries(self, request: httpx.Request, safe: bool, stream: bool = False) -> httpx.Response:
        for pause in (*RETRY_PAUSES, None):
            try:
                response = self._http.send(request, stream=stream)
            except httpx.TransportError as error:
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
                if pause is None or not (safe or unsent):
                    raise self._away(error) from error
                self._pause(pause)
                continue
            if pause is None or not safe or response.status_code not in RETRY_STATUSES:
                return response
            response.close()
            self._pause(max(pause, _retry_after(response)))
        raise AssertionError("the last try returns or raises")

    def _away(self, error: httpx.TransportError) -> ApiError:
        timed_out = isinstance(error, httpx.TimeoutException)
        what = f"did not answer within {self._timeout:g} s" if timed_out else f"cannot be reached ({error})"
        return ApiError(0, SERVER_AWAY, f"{self.base} {what}")


def is_loopback(url: str) -> bool:
    """Whether a URL is of this computer."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _clean(params: Params | None) -> dict[str, str | int | list[str]]:
    return {key: value for key, value in (params or {}).items() if value is not None}


def _retry_after(response: httpx.Response) -> float:
    try:
        return min(float(response.headers.get("Retry-After", "0")), RETRY_AFTER_MOST)
    except ValueError:
        return 0.0


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        document = json.loads(response.content)
    except ValueError:
        document = None
    raise from_problem(response.status_code, document, response.text)


def _decoded(response: httpx.Response) -> Json:
    content = _checked(response).content
    if not content:
        return None
    try:
        return json.loads(content)
    except ValueError as error:
        raise ApiError(
            response.status_code, "not-json", f"{response.url.copy_with(query=None)} is not an Astraeus API: no JSON"
        ) from error
