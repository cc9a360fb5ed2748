"""Reading `iblinkinfo`: a line for each port (`-l`), and its blocks."""

import re

from astraeus.topology import rates
from astraeus.topology.scan import Node, Scan

SOURCE = "iblinkinfo"
STATE = (
    r"(\d+)\s+(\d{1,3})\[\s*\d*\s*\]\s+==\(\s*(?:(\d{1,2}X)\s+(\d[\d.]*\s*Gbps(?:\s*\(FDR10\))?)\s+)?"
    r"(\w+)\s*/\s*([\w ]+?)\s*\)==>"
)
PEER = r'\s*(?:(0x[0-9a-fA-F]{1,16})\s+)?(?:(\d+)\s+(\d{1,3}))?\s*\[\s*\d*\s*\]\s+"(.*)"\s*\((.*)\)'
LINE = re.compile(r'(0x[0-9a-fA-F]{1,16})\s+"(.*?)"\s+' + STATE + PEER)
BLOCK_LINE = re.compile(r"(?:(0x[0-9a-fA-F]{1,16})\s+)?" + STATE + PEER)
BLOCK = re.compile(r"(Switch|CA|Router):\s+(?:(0x[0-9a-fA-F]{1,16})\s+)?(.*):")
UNREADABLE = re.compile(r'.*==>.*"Port not available".*')
SWITCH_NAMES = ("MF0;", "Quantum", "SwitchX", "Switch-IB", "Infiniscale", "SwitchIB")


def parse(text: str) -> Scan:
    """Both forms; a peer that a block names by its LID alone is looked up in the same text."""
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        reader.read(number, line.strip())
    return reader.finish()


class _Reader:
    """What was read so far. A line does not say whether its node is a switch; its port numbers do."""

    def __init__(self) -> None:
        self.scan = Scan()
        self.by_lid: dict[int, int] = {}
        self.pending: list[tuple[int, int, int, int, str]] = []
        self.block: tuple[str, int | None, str] | None = None

    def read(self, number: int, line: str) -> None:
        """Take one line."""
        if not line or line.startswith("#"):
            return
        if found := LINE.fullmatch(line):
            self._port(int(found[1], 16), found[2].strip(), None, found.groups()[2:])
        elif found := BLOCK.fullmatch(line):
            self.block = found[1], int(found[2], 16) if found[2] else None, found[3]
        elif (found := BLOCK_LINE.fullmatch(line)) and self.block:
            kind, guid, description = self.block
            own = int(found[1], 16) if found[1] else guid
            if own and kind != "Router":
                self._port(own, description, kind == "Switch", found.groups()[1:])
        elif not UNREADABLE.fullmatch(line):
            self.scan.puzzled(SOURCE, number, line)

    def _port(self, guid: int, description: str, switch: bool | None, parts: tuple[str | None, ...]) -> None:
        lid, port_text, width, lane, state, physical, peer_guid, peer_lid, peer_port, peer_name, could = parts
        port = int(port_text or 0)
        known = guid in self.scan.nodes
        node = self.scan.node(guid, bool(switch), description)
        if switch is None and not node.switch:
            node.switch = description.startswith(SWITCH_NAMES) or port > 2 or (known and node.ports not in (0, port))
        node.ports = max(node.ports, port)
        if lid and int(lid):
            self.by_lid[int(lid)] = guid
        if not width or not lane or physical != "LinkUp":
            if state == "Down":
                self.scan.down.add((guid, port))
            return
        rate = rates.named(width, lane)
        if could and could.strip():
            self.scan.better[guid, port] = could.removeprefix("Could be").strip()
        if peer_guid and peer_port:
            there = int(peer_guid, 16)
            self._peer(there, int(peer_port), peer_name or "")
            self.scan.link((guid, port), (there, int(peer_port)), rate)
        elif peer_lid and peer_port:
            self.pending.append((guid, port, int(peer_lid), int(peer_port), rate))

    def _peer(self, guid: int, port: int, description: str) -> Node:
        node = self.scan.node(guid, False, description)
        node.switch = node.switch or port > 2 or description.startswith(SWITCH_NAMES)
        return node

    def finish(self) -> Scan:
        """Everything, with the peers that were known by LID, and without ports of adapters among the dark ones."""
        for guid, port, lid, peer_port, rate in self.pending:
            if (there := self.by_lid.get(lid)) is not None:
                self.scan.link((guid, port), (there, peer_port), rate)
        self.scan.down = {end for end in self.scan.down if self.scan.nodes[end[0]].switch}
        self._forget_common_marks()
        return self.scan

    def _forget_common_marks(self) -> None:
        """A mark on most links is what the program prints of every port, as the simulator does, and no fault."""
        if len(self.scan.better) * 2 > len(self.scan.peers):
            self.scan.better.clear()
