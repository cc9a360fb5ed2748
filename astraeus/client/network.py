"""The calls about a cluster's network: scans, findings, measured bandwidths, exports."""

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from astraeus.client.connection import Connection, Json

PACK_OVER = 64 * 1024


@dataclass(frozen=True)
class Output:
    """What a tool printed, or a file: its bytes, gzipped or not. Without `tool` the server tells it by the text."""

    data: bytes
    tool: str | None = None


class Network:
    """The network's calls of one workspace over a `Connection`."""

    def __init__(self, connection: Connection, cluster: str | None = None) -> None:
        self.connection = connection
        self.cluster = cluster

    def tree(self) -> Json:
        """The tree, the fabrics as they were scanned, and the scan that is held."""
        return self._call("GET", "")

    def findings(self, closed: bool = False) -> Json:
        """The open findings, the worst first; or those closed last."""
        return self._call("GET", "/findings", closed="true" if closed else None)

    def scan(self, outputs: Sequence[Output], force: bool = False) -> Json:
        """Hand over what the tools printed. Sent again it changes nothing more."""
        body = {"outputs": [_packed(output) for output in outputs], "force": force}
        return self._call("POST", "/scan", body)

    def apply_held(self) -> Json:
        """Apply the scan that is held."""
        return self._call("POST", "/held:apply")

    def discard_held(self) -> None:
        """Drop the scan that is held."""
        self._call("POST", "/held:discard")

    def forget(self) -> None:
        """Forget what scans and files said."""
        self._call("DELETE", "")

    def measured(self) -> Json:
        """What stands for each rung and GPU model."""
        return self._call("GET", "/measured")

    def add_measured(self, measurement: dict[str, Any]) -> Json:
        """Add a measured bandwidth; not repeated by itself, since each one counts."""
        return self.connection.call("POST", "/topology/measured", params={"cluster": self.cluster}, body=measurement)

    def export(self, kind: str) -> str:
        """The network for another scheduler."""
        with self.connection.stream(f"/topology/export/{kind}", {"cluster": self.cluster}) as response:
            return response.read().decode()

    def _call(self, method: str, path: str, body: Json = None, **params: str | None) -> Json:
        given = {"cluster": self.cluster, **params}
        return self.connection.call(method, f"/topology{path}", params=given, body=body, repeatable=True)


def _packed(output: Output) -> dict[str, Any]:
    data = output.data
    if len(data) > PACK_OVER and data[:2] != b"\x1f\x8b":
        data = gzip.compress(data, 6)
    if data[:2] == b"\x1f\x8b":
        return {"tool": output.tool, "gzip": base64.b64encode(data).decode()}
    return {"tool": output.tool, "text": data.decode("utf-8", "replace")}
