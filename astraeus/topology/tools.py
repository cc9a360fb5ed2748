"""Reading `ibqueryerrors` and `sminfo`, and telling by its text which tool wrote an output."""

import re
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal

from astraeus.topology import iblinkinfo, ibnetdiscover
from astraeus.topology.scan import Scan, merged

Tool = Literal["ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo"]
TEXT_MOST = 512 * 1024 * 1024
PART = 16 * 1024

NODE_ERRORS = re.compile(r'Errors for (?:0x[0-9a-fA-F]{1,16} )?".*"')
PORT_ERRORS = re.compile(r"GUID 0x([0-9a-fA-F]{1,16}) port (\d{1,3}|ALL):(.*)")
COUNTER = re.compile(r"\[(\w+) == (\d{1,20})[^\]]*\]")
REST = re.compile(r"##|Link info:|#|Suppressed|Thresholds")
MANAGER = re.compile(r"sm guid 0x([0-9a-fA-F]{1,16})")
LINES_SNIFFED = 400


def parse_errors(text: str) -> Scan:
    """`ibqueryerrors`, with or without `--details`; sums over all ports are left out."""
    scan = Scan(counted=True)
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if found := PORT_ERRORS.fullmatch(line):
            counters = {name: int(value) for name, value in COUNTER.findall(found[3])}
            if found[2] != "ALL" and counters:
                scan.counters[int(found[1], 16), int(found[2])] = counters
        elif line and not NODE_ERRORS.match(line) and not REST.match(line):
            scan.puzzled("ibqueryerrors", number, raw)
    return scan


def parse_manager(text: str) -> Scan:
    """`sminfo`: the port GUID of the subnet manager that is master."""
    return Scan(managers=[int(guid, 16) for guid in MANAGER.findall(text) if int(guid, 16)])


def sniff(text: str) -> Tool | None:
    """Which tool wrote this; None when it is none that is known."""
    for line in text.splitlines()[:LINES_SNIFFED]:
        plain = line.strip()
        if "==(" in plain and ")==>" in plain and not plain.startswith("Link info"):
            return "iblinkinfo"
        if PORT_ERRORS.match(plain) or NODE_ERRORS.match(plain) or plain.startswith("## Summary:"):
            return "ibqueryerrors"
        if "sm guid 0x" in plain:
            return "sminfo"
        if ibnetdiscover.HEAD.match(plain) or ibnetdiscover.REPORT.fullmatch(plain) or "switchguid=" in plain:
            return "ibnetdiscover"
        if plain.startswith("# Topology file") or ibnetdiscover.INITIATOR.match(plain):
            return "ibnetdiscover"
    return None


def parse(text: str, tool: Tool) -> Scan:
    """What a tool's output says."""
    if tool == "iblinkinfo":
        return iblinkinfo.parse(text)
    if tool == "ibqueryerrors":
        return parse_errors(text)
    if tool == "sminfo":
        return parse_manager(text)
    head = text[: 1 << 16].splitlines()
    report = any(ibnetdiscover.REPORT.fullmatch(line.strip()) for line in head[:50])
    return ibnetdiscover.parse_ports(text) if report else ibnetdiscover.parse(text)


def decode(data: bytes) -> str:
    """The text of an output, gzipped or not; what is cut off or no UTF-8 costs only itself."""
    if data[:2] == b"\x1f\x8b":
        data = _unpacked(data)
    return data.decode("utf-8", "replace")


def _unpacked(data: bytes) -> bytes:
    """What can be read of a gzipped file, which may be several put one after the other."""
    found, at, reader = bytearray(), 0, zlib.decompressobj(31)
    with suppress(zlib.error):
        while at < len(data) and len(found) < TEXT_MOST:
            part = data[at : at + PART]
            found += reader.decompress(part, TEXT_MOST - len(found))
            at += len(part) - len(reader.unused_data)
            if reader.eof:
                reader = zlib.decompressobj(31)
    return bytes(found)


def together(scans: Iterable[tuple[Tool, Scan]]) -> Scan:
    """Outputs of several tools as one scan: ibnetdiscover is believed first where they contradict each other."""
    order: dict[Tool, int] = {"ibnetdiscover": 0, "iblinkinfo": 1, "ibqueryerrors": 2, "sminfo": 3}
    return merged(scan for _, scan in sorted(scans, key=lambda pair: order[pair[0]]))
