"""Who a token speaks for, remembered for a moment so that a busy client costs few queries."""

import hashlib
import time
from dataclasses import replace

from astraeus.ledger.core import Ledger
from astraeus.ledger.tenancy import Caller, authenticate, note_use

REMEMBER_SECONDS = 2.0
REMEMBER_MOST = 4096


class TokenCache:
    """Callers by the hash of their token; only good tokens are kept, and none for longer than two seconds."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[float, Caller]] = {}

    async def caller(self, ledger: Ledger, plaintext: str) -> Caller | None:
        """The caller, or None when the token is unknown, expired or revoked."""
        key = hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).digest()
        now = time.monotonic()
        known = self._known.get(key)
        if known and known[0] > now:
            return known[1]
        async with ledger.reading() as tx:
            caller = await authenticate(tx, plaintext)
        if caller is not None and caller.unnoted:
            async with ledger.transaction() as tx:
                await note_use(tx, caller.token)
        if len(self._known) >= REMEMBER_MOST:
            self._known.clear()
        if caller is None:
            self._known.pop(key, None)
        else:
            self._known[key] = (now + REMEMBER_SECONDS, replace(caller, unnoted=False))
        return caller

    def forget(self) -> None:
        """Ask the ledger again for every token, since one was revoked."""
        self._known.clear()
