"""Payloads are sealed before Temporal sees them: neither its database nor its UI shows what they say."""

import dataclasses
from collections.abc import Sequence

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

from astraeus.ledger.cipher import Cipher

ENCODING = b"binary/astraeus-sealed"
AAD = b"temporal-payload"


class SealingCodec(PayloadCodec):
    """AES-GCM over whole payloads; the key's id travels with them, so old keys go on opening old histories."""

    def __init__(self, cipher: Cipher) -> None:
        self.cipher = cipher

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Seal every payload."""
        return [
            Payload(metadata={"encoding": ENCODING}, data=self.cipher.seal(payload.SerializeToString(), AAD))
            for payload in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Open what this codec sealed; leave the rest as it is."""
        return [self._open(payload) for payload in payloads]

    def _open(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        return Payload.FromString(self.cipher.open(payload.data, AAD))


def data_converter(cipher: Cipher) -> DataConverter:
    """Pydantic values in sealed payloads, failure messages and stack traces included."""
    return dataclasses.replace(
        pydantic_data_converter,
        payload_codec=SealingCodec(cipher),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )
