"""The one mapper from errors to problem documents (RFC 9457)."""

import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from astraeus.model.errors import AstraeusError
from astraeus.model.faults import BadSpec, pointer

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:astraeus:problem:"
TITLES = {
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Gone",
    413: "Too large",
    415: "Wrong content type",
    422: "Invalid input",
    500: "Internal error",
    503: "Away for now",
}


class FaultView(BaseModel):
    """One thing wrong with the input."""

    pointer: str = Field(description="Where: a JSON pointer into the body, or `/query/<name>`, `/header/<name>`.")
    message: str = Field(description="What is wrong there and what to do.")


class Problem(BaseModel):
    """A problem document (RFC 9457). `code` is stable; `faults` lists everything wrong with the input."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    faults: list[FaultView] | None = None


class BadRequest(AstraeusError):
    """The body cannot be read as JSON."""

    code = "bad-json"
    http_status = 400


class TooLarge(AstraeusError):
    """The body is larger than the API takes."""

    code = "too-large"
    http_status = 413


class WrongContentType(AstraeusError):
    """The body is said to be something other than JSON."""

    code = "wrong-content-type"
    http_status = 415


class ReaderLeft(AstraeusError):
    """Nobody waits for this upload."""

    code = "reader-left"
    http_status = 410


def problem(
    status: int, code: str, detail: str, faults: list[FaultView] | None = None, headers: dict[str, str] | None = None
) -> Response:
    """A problem document as a response."""
    body = Problem(
        type=TYPE + code,
        title=TITLES.get(status, "Error"),
        status=status,
        detail=_printable(detail),
        code=code,
        faults=faults,
    )
    return Response(body.model_dump_json(exclude_none=True), status, headers, MEDIA_TYPE)


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem document."""
    app.add_exception_handler(AstraeusError, _of_ours)
    app.add_exception_handler(RequestValidationError, _of_parameters)
    app.add_exception_handler(HTTPException, _of_http)


def answer(error: Exception) -> Response:
    """The problem document of any error."""
    if isinstance(error, AstraeusError):
        return _ours(error)
    log.error("unexpected error", exc_info=error)
    return problem(500, "internal", "This is a fault of the server; its log has the request id of this answer.")


def _ours(error: AstraeusError) -> Response:
    faults = None
    if isinstance(error, BadSpec):
        faults = [FaultView(pointer=_printable(f.pointer), message=_printable(f.message)) for f in error.faults]
    headers = {}
    if error.http_status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="astraeus"'
    if error.retryable:
        headers["Retry-After"] = "1"
    return problem(error.http_status, error.code, error.message, faults, headers)


async def _of_ours(_: Request, error: Exception) -> Response:
    return answer(error)


async def _of_parameters(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [_parameter_fault(dict(item)) for item in error.errors()]
    detail = "; ".join(f"{fault.pointer} {fault.message}" for fault in faults)
    return problem(422, "invalid", detail, faults)


def _parameter_fault(item: dict[str, Any]) -> FaultView:
    message = str(item["msg"])
    return FaultView(pointer=pointer(tuple(item["loc"])), message=message[0].lower() + message[1:])


async def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    headers = dict(error.headers or {})
    if status == 404:
        return problem(404, "no-such-route", f"There is nothing at {request.url.path}; see /openapi.json")
    if status == 405:
        headers["Allow"] = ", ".join(request.app.state.methods_at(request.scope))
        return problem(405, "method-not-allowed", f"{request.method} is not for {request.url.path}", headers=headers)
    return problem(status, f"http-{status}", str(error.detail), headers=headers)
