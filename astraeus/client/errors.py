"""What a call to the API can fail with."""

from collections.abc import Sequence

from astraeus.model.errors import Fault

SERVER_AWAY = "server-away"
AWAY_STATUSES = frozenset({0, 502, 503, 504})


class ApiError(Exception):
    """The API refused a call, or could not be reached (`status` 0, `code` `server-away`).

    `code` is stable and machine-readable; `faults` is filled where a specification was refused.
    """

    def __init__(self, status: int, code: str, detail: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.faults = list(faults)

    @property
    def away(self) -> bool:
        """Whether the same call may succeed later without a change."""
        return self.status in AWAY_STATUSES


class NotConfigured(Exception):
    """There is no address or no token to call with; the message says how to give one."""


class Unsendable(ValueError):
    """A call that cannot be sent as it was given; the message says why."""


NOT_TEXT = "what was given is not UTF-8 text"


def from_problem(status: int, document: object, text: str) -> ApiError:
    """The error in a problem document (RFC 9457), or a plain one when the answer is something else."""
    if not isinstance(document, dict):
        return ApiError(status, f"http-{status}", text.strip()[:500] or f"the server answered {status}")
    raw = document.get("faults")
    faults = [
        Fault(str(item.get("pointer", "")), str(item.get("message", "")))
        for item in (raw if isinstance(raw, list) else [])
        if isinstance(item, dict)
    ]
    detail = document.get("detail") or document.get("title") or f"the server answered {status}"
    return ApiError(status, str(document.get("code") or f"http-{status}"), str(detail), faults)
