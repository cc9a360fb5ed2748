"""Reading `ibnetdiscover`: its plain form, with `--full` or `-g`, and the ports report of `-p`."""

import re

from astraeus.topology.scan import Node, Scan

SOURCE = "ibnetdiscover"
PORT = r"\[(\d{1,3})\](?:\[ext \d+\])?(?:\(([0-9a-fA-F]{1,16})\))?"
LINK = re.compile(PORT + r'\s+"([SHR])-([0-9a-fA-F]{1,16})"' + PORT + r"\s*#\s*(.*)")
HEAD = re.compile(r'(Switch|Ca|Rt)\s+(\d{1,3})\s+"[SHR]-([0-9a-fA-F]{1,16})"\s*(?:#\s*(.*))?')
VALUE = re.compile(r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x([0-9a-fA-F]{1,16})(?:\([0-9a-fA-F]*\))?")
INITIATOR = re.compile(r"# Initiated from node [0-9a-fA-F]{1,16} port ([0-9a-fA-F]{1,16})")
HEADING = re.compile(r"Chassis \d+|Chassis \w|Non-Chassis Nodes|Spine \d|Line \d")
REPORT_END = r"(CA|SW|RT)\s+(\d+)\s+(\d{1,3})\s+0x([0-9a-fA-F]{1,16})"
REPORT = re.compile(
    REPORT_END + r"\s+(\S+)\s(\S+)(?:\s+-\s+" + REPORT_END + r"\s+\(\s*'(.*)'\s+-\s+'(.*)'\s*\)|\s+'(.*)')\s*"
)


def parse(text: str) -> Scan:
    """Everything that can be read of the plain form; the other lines are listed."""
    scan = Scan()
    now: Node | None = None
    router = False
    values: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("["):
            if not router and (now is None or not _link(scan, now, line)):
                scan.puzzled(SOURCE, number, line)
        elif found := VALUE.fullmatch(line.strip()):
            now = None
            values[found[1]] = int(found[2], 16)
        elif found := HEAD.fullmatch(line.strip()):
            now, router = _head(scan, found, values), found[1] == "Rt"
            values = {}
        elif found := INITIATOR.match(line):
            scan.initiator = int(found[1], 16)
        elif not line.strip():
            now, router = None, False
        elif not line.startswith("#") and not HEADING.match(line):
            now = None
            scan.puzzled(SOURCE, number, line)
    return scan


def _head(scan: Scan, found: re.Match[str], values: dict[str, int]) -> Node | None:
    guid = int(found[3], 16)
    if found[1] == "Rt" or not guid:
        return None
    comment = found[4] or ""
    node = scan.node(guid, found[1] == "Switch", _quoted(comment)[0])
    node.ports = int(found[2])
    node.system = values.get("sysimgguid", 0)
    node.device = values.get("devid", 0)
    return node


def _link(scan: Scan, node: Node, line: str) -> bool:
    """Take a port's line of a record; whether it could be read."""
    found = LINK.match(line)
    if found is None:
        return False
    port, own, kind, peer_hex, peer_port, peer_own, comment = found.groups()
    peer = int(peer_hex, 16)
    if own and not node.switch:
        scan.aliases[int(own, 16)] = node.guid
    if kind == "R" or not peer:
        return True
    if peer_own and kind == "H":
        scan.aliases[int(peer_own, 16)] = peer
    description, tail = _quoted(comment)
    words = tail.split()
    if len(words) < 3 or words[0] != "lid":
        return False
    scan.node(peer, kind == "S", description)
    scan.link((node.guid, int(port)), (peer, int(peer_port)), words[2])
    return True


def _quoted(comment: str) -> tuple[str, str]:
    """The description in a comment, which may itself hold quotes, and what follows it."""
    first, last = comment.find('"'), comment.rfind('"')
    return (comment[first + 1 : last], comment[last + 1 :]) if 0 <= first < last else ("", comment)


def parse_ports(text: str) -> Scan:
    """The report of `-p`: adapters are known by their port's GUID there."""
    scan = Scan()
    for number, line in enumerate(text.splitlines(), 1):
        found = REPORT.fullmatch(line.strip())
        if found is None:
            if line.strip() and not line.startswith("#"):
                scan.puzzled(SOURCE, number, line)
            continue
        kind, _, port, guid, width, speed, peer_kind, _, peer_port, peer_guid, own, peer, alone = found.groups()
        here = int(guid, 16)
        if kind == "RT" or not here:
            continue
        scan.node(here, kind == "SW", own or alone or "")
        there = int(peer_guid, 16) if peer_guid else 0
        if there and peer_kind != "RT":
            scan.node(there, peer_kind == "SW", peer)
            scan.link((here, int(port)), (there, int(peer_port)), f"{width}{speed}")
    return scan
