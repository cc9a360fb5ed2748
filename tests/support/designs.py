"""Fabrics of any design for tests: switches, adapters and cables put together, and printed as ibnetdiscover does."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

NDR, HDR, CX7, CX6, XDR = "4xNDR", "4xHDR", 0x1021, 0x101B, "4xXDR"
WORDS = {"S": ("Switch", "switchguid"), "H": ("Ca", "caguid"), "R": ("Rt", "rtguid")}


@dataclass
class Node:
    """A switch, an adapter or a router."""

    kind: str
    description: str
    device: int
    ports: int
    system: int


@dataclass
class Design:
    """What was put together so far; fabrics of other numbers have other GUIDs."""

    number: int = 0
    nodes: dict[int, Node] = field(default_factory=dict)
    cables: dict[int, dict[int, tuple[int, int, str]]] = field(default_factory=lambda: defaultdict(dict))

    def node(self, kind: str, description: str, device: int, ports: int, system: int = 0) -> int:
        """Another node; answers its GUID."""
        guid = 0xA088C20000000000 + (self.number << 32) + (len(self.nodes) + 1) * 16
        self.nodes[guid] = Node(kind, description, device, ports, system or guid)
        return guid

    def switch(self, description: str) -> int:
        """Another switch."""
        return self.node("S", description, 0xD2F2, 129)

    def switches(self, *descriptions: str) -> list[int]:
        """Several switches."""
        return [self.switch(words) for words in descriptions]

    def adapter(self, description: str, switch: int, rate: str = NDR, device: int = CX7) -> int:
        """Another adapter with one port, on the next free port of a switch."""
        guid = self.node("H", description, device, 1)
        self.cable(guid, switch, rate)
        return guid

    def cable(self, one: int, other: int, rate: str = NDR, times: int = 1, port: int = 0) -> None:
        """Cables between the next free ports of two nodes, or a port of the first."""
        for _ in range(times):
            a, b = port or len(self.cables[one]) + 1, len(self.cables[other]) + 1
            self.cables[one][a] = other, b, rate
            self.cables[other][b] = one, a, rate

    def uplinks(self, leaves: Iterable[int], spines: Iterable[int], times: int = 1) -> None:
        """Cables from each leaf to each spine."""
        for leaf in leaves:
            for spine in spines:
                self.cable(leaf, spine, times=times)

    def text(self) -> str:
        """What ibnetdiscover prints."""
        return "\n".join(line for kind in "SHR" for guid in self.nodes for line in self._record(kind, guid)) + "\n"

    def _record(self, kind: str, guid: int) -> Iterator[str]:
        node = self.nodes[guid]
        if node.kind != kind:
            return
        word, key = WORDS[kind]
        yield from ("", "vendid=0x2c9", f"devid=0x{node.device:x}", f"sysimgguid=0x{node.system:x}")
        yield f"{key}=0x{guid:x}" + (f"({guid:x})" if kind == "S" else "")
        tail = " enhanced port 0 lid 5 lmc 0" if kind == "S" else ""
        yield f'{word}\t{node.ports} "{kind}-{guid:016x}"\t\t# "{node.description}"{tail}'
        for port, (peer, peer_port, rate) in sorted(self.cables[guid].items()):
            far = self.nodes[peer]
            end = f'"{far.kind}-{peer:016x}"[{peer_port}]'
            if kind == "S":
                yield f'[{port}]\t{end}({peer:x}) \t\t# "{far.description}" lid 9 {rate}'
            else:
                yield f'[{port}]({guid:x}) \t{end}\t\t# lid 9 lmc 0 "{far.description}" lid 4 {rate}'


def rails(
    design: Design,
    machines: Iterable[str],
    spines: Iterable[int],
    devices: Iterable[str] = tuple(f"mlx5_{i}" for i in range(8)),
    rate: str = NDR,
    times: int = 4,
) -> list[int]:
    """A leaf group: a leaf for each device of these machines, with uplinks; answers the leaves."""
    names, leaves, above = list(machines), [], list(spines)
    for device in devices:
        leaf = design.switch(f"leaf-{names[0]}-{device}")
        for name in names:
            design.adapter(f"{name} {device}", leaf, rate)
        design.uplinks([leaf], above, times)
        leaves.append(leaf)
    return leaves
