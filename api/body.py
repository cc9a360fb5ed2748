"""Reading a JSON body: bounded, strict, with the place of a mistake."""

import json
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from api.errors import BadRequest, TooLarge, WrongContentType
from astraeus.model.faults import BadSpec, faults_of

BODY_MAX = 4 * 1024 * 1024
Model = TypeVar("Model", bound=BaseModel)


async def read_bytes(request: Request, most: int = BODY_MAX) -> bytes:
    """The whole body. Raises `TooLarge` as soon as it is clear that it has more than `most` bytes."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length[:20]) > most:
        raise TooLarge(f"The body has {length[:20]} bytes; at most {most} are taken. Put large files on a drive.")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise TooLarge(f"The body has more than {most} bytes. Put large files on a drive.")
        parts.append(part)
    return b"".join(parts)


async def read_json(request: Request, most: int = BODY_MAX) -> Any:
    """The decoded JSON body; an absent body is a mistake."""
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise WrongContentType(f"The body is {content_type}; send JSON with 'Content-Type: application/json'.")
    data = await read_bytes(request, most)
    if not data.strip():
        raise BadRequest("The body is empty; send a JSON object.")
    return decode(data)


async def read_optional_json(request: Request) -> Any:
    """The decoded JSON body, or an empty object when there is no body."""
    chunked = "transfer-encoding" in request.headers
    if not chunked and request.headers.get("content-length", "0") == "0":
        return {}
    return await read_json(request)


async def read_model(request: Request, model: type[Model], optional: bool = False, most: int = BODY_MAX) -> Model:
    """The body as `model`. Raises `BadSpec` with every fault."""
    raw = await (read_optional_json(request) if optional else read_json(request, most))
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise BadSpec(faults_of(error, model)) from error


def decode(data: bytes) -> Any:
    """JSON as the standard has it: UTF-8, no NaN, no half characters, no depth that would break a reader."""
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"The body is not UTF-8 at byte {error.start}.") from error
    except UnicodeEncodeError as error:
        raise BadRequest("The body holds half of a surrogate pair; send whole characters.") from error
    except json.JSONDecodeError as error:
        raise BadRequest(f"The body is not JSON: line {error.lineno}, column {error.colno}: {error.msg}.") from error
    except RecursionError as error:
        raise BadRequest("The body is nested too deeply.") from error
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}.") from error
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")
