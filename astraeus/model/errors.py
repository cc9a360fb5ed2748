"""Errors that say what to do next; one mapper turns them into problem documents, one into Temporal failures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One thing wrong with the input: where (a JSON pointer) and what to do about it."""

    pointer: str
    message: str


class AstraeusError(Exception):
    """Base of every error the product raises on purpose.

    `code` is stable and machine-readable, `http_status` is what the API answers, `retryable` says whether
    the same call may succeed later without a change.
    """

    code = "error"
    http_status = 500
    retryable = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(AstraeusError):
    """The named thing does not exist here, or is not visible to the caller."""

    code = "not-found"
    http_status = 404


class Conflict(AstraeusError):
    """The call contradicts the present state; the message names what stands in the way."""

    code = "conflict"
    http_status = 409


class NotAllowed(AstraeusError):
    """The token's role or scope does not cover the call."""

    code = "not-allowed"
    http_status = 403


class NotSignedIn(AstraeusError):
    """No token, or one that is unknown, expired or revoked."""

    code = "not-signed-in"
    http_status = 401


class Invalid(AstraeusError):
    """The input is wrong in one place that is not part of a run specification."""

    code = "invalid"
    http_status = 422


class StaleTerm(AstraeusError):
    """A writer with an older term tried to decide; nothing was written."""

    code = "stale-term"
    http_status = 409


class Away(AstraeusError):
    """A part the call needs does not answer; the same call may succeed later."""

    code = "away"
    http_status = 503
    retryable = True
