"""Sealing secrets and payloads: AES-GCM with the key's id in front, so that keys can be replaced."""

import base64
import binascii
import os
import re
import secrets
from collections.abc import Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from astraeus.model.errors import AstraeusError

KEY_BYTES = 32
NONCE_BYTES = 12
KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class CannotOpen(AstraeusError):
    """Sealed bytes whose key is not known here, or that were changed, or that belong elsewhere."""

    code = "cannot-open"


class Cipher:
    """Seals with one key and opens with any of its keys."""

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        """`keys` are 32 bytes each, by their ids. Raises ValueError."""
        if current not in keys:
            raise ValueError(f"there is no key {current!r}")
        for id, key in keys.items():
            if not KEY_ID.fullmatch(id):
                raise ValueError(f"{id!r} is no key id; use up to 64 letters, digits, '.', '_' and '-'")
            if len(key) != KEY_BYTES:
                raise ValueError(f"key {id} has {len(key)} bytes; it must have {KEY_BYTES}")
        self._keys = {id: AESGCM(key) for id, key in keys.items()}
        self._current = current
        self._head = bytes([len(current)]) + current.encode()

    @classmethod
    def from_text(cls, text: str) -> "Cipher":
        """`id:base64,id2:base64`; the first key is current, the others only open. Raises ValueError."""
        keys: dict[str, bytes] = {}
        for part in text.strip().split(","):
            id, colon, encoded = part.strip().partition(":")
            if not colon or id in keys:
                raise ValueError("keys must read id:base64,id2:base64, each id once")
            try:
                keys[id] = base64.b64decode(encoded, validate=True)
            except binascii.Error:
                raise ValueError(f"key {id!r} is not base64") from None
        return cls(keys, next(iter(keys)))

    @staticmethod
    def generate_text() -> str:
        """A new key under a new id, for `from_text`."""
        return f"k{secrets.token_hex(4)}:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"

    def seal(self, data: bytes, aad: bytes) -> bytes:
        """`data` encrypted with the current key; it opens only with the same `aad`."""
        nonce = os.urandom(NONCE_BYTES)
        return self._head + nonce + self._keys[self._current].encrypt(nonce, data, aad)

    def open(self, data: bytes, aad: bytes) -> bytes:
        """What `seal` was given. Raises `CannotOpen`."""
        end = 1 + data[0] if data else 0
        id = data[1:end].decode("ascii", "replace")
        key = self._keys.get(id)
        if key is None:
            raise CannotOpen(f"This was sealed with key {id!r}, which is not among the keys; add that key again")
        nonce, sealed = data[end : end + NONCE_BYTES], data[end + NONCE_BYTES :]
        try:
            return key.decrypt(nonce, sealed, aad)
        except (InvalidTag, ValueError):
            raise CannotOpen("This was changed after it was sealed, or belongs elsewhere") from None
