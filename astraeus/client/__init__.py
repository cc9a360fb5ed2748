"""The httpx client of the API: `Client` for programs, `Api` for those who want the API's own JSON."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from astraeus.client.client import Client
    from astraeus.client.errors import ApiError

__all__ = ["ApiError", "Client"]


def __getattr__(name: str) -> object:
    # Loaded on use: the CLI reads astraeus.client.config without paying for httpx and the models.
    if name == "Client":
        from astraeus.client.client import Client

        return Client
    if name == "ApiError":
        from astraeus.client.errors import ApiError

        return ApiError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
