"""Fabrics for tests: the kept outputs of real tools, the same spoiled by chance, and generated ones of any size."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from astraeus.topology import tools
from astraeus.topology.derive import Derived, derive
from astraeus.topology.owners import Inventory, Owned
from astraeus.topology.scan import End, Scan, guid_of

FIXTURES = Path(__file__).parents[1] / "topology" / "fixtures"
A, B, D, E = "a-rail-2groups", "b-rail-2groups-faults", "d-511-machines", "e-fattree-hdr-2to1"
C1, C2 = "c-two-fabrics/fabric-1", "c-two-fabrics/fabric-2"
NOBODY = Inventory()
REST = "enhanced port 0 lid 1 lmc 0"


def text(name: str) -> str:
    """The text of a kept output."""
    return tools.decode((FIXTURES / f"{name}.gz").read_bytes())


def truth(folder: str) -> dict[str, Any]:
    """What was built, and what was broken."""
    found: dict[str, Any] = json.loads(gzip.decompress((FIXTURES / folder / "truth.json.gz").read_bytes()))
    return found


def scan(*names: str) -> Scan:
    """These outputs as one scan; the tool is told by the text."""
    found = []
    for name in names:
        words = text(name)
        tool = tools.sniff(words)
        assert tool is not None, name
        found.append((tool, tools.parse(words, tool)))
    return tools.together(found)


def everything(folder: str) -> Scan:
    """All outputs of a folder that a site would upload together."""
    return scan(*(f"{folder}/{name}" for name in ("ibnetdiscover.txt", "iblinkinfo-l.txt", "sminfo.txt")))


def with_counters(folder: str) -> Scan:
    """The same with the error counters."""
    return tools.together(
        [("ibnetdiscover", everything(folder)), ("ibqueryerrors", scan(f"{folder}/ibqueryerrors.txt"))]
    )


def inventory(folder: str, *, without: frozenset[str] = frozenset()) -> Inventory:
    """What the machines' agents would report; those in `without` report no GUIDs."""
    built = truth(folder)
    adapters = {}
    for guid, name in built["nic_guids"].items():
        machine, device = name.split("/")
        number = guid_of(guid)
        if machine in built["machines"] and machine not in without and number is not None:
            adapters[number] = Owned(machine, device, built["nic_order"].index(device))
    return Inventory(frozenset(built["machines"]), adapters)


def groups(derived: Derived) -> list[list[str]]:
    """The machines of every leaf group."""
    return [list(group.machines) for fabric in derived.fabrics for group in fabric.groups]


def built_groups(folder: str) -> list[list[str]]:
    """The same, as built."""
    return [group["machines"] for group in truth(folder)["leaf_groups"]]


def spoiled(found: Scan, dice: random.Random, missing: float, miswired: float) -> Scan:
    """A copy with a part of the machines' cables gone, and a part of them exchanged among each other."""
    nics = [
        (one, other)
        for end, peer, _ in found.links()
        for one, other in ([(end, peer)] if not found.nodes[end[0]].switch else [(peer, end)])
        if not found.nodes[one[0]].switch and found.nodes[one[0]].description.startswith("node")
    ]
    gone = {one for one, _ in nics if dice.random() < missing}
    to: dict[End, End] = {one: other for one, other in nics if one not in gone}
    moved = [one for one in to if dice.random() < miswired]
    places = [to[one] for one in moved]
    dice.shuffle(places)
    to.update(zip(moved, places, strict=True))
    copy = Scan(nodes=found.nodes, aliases=found.aliases, managers=found.managers, initiator=found.initiator)
    ours = {one for one, _ in nics}
    for one, other, rate in found.links():
        if one not in ours and other not in ours:
            copy.link(one, other, rate)
    for one, other in to.items():
        copy.link(one, other, found.rates[one])
    return copy


def derived(found: Scan, known: Inventory = NOBODY) -> Derived:
    """What a scan says, seen for the first time."""
    return derive(found, known)


def ibnetdiscover(
    machines: int,
    *,
    group: int = 32,
    pod: int = 4,
    devices: tuple[str, ...] = tuple(f"mlx5_{i}" for i in range(8)),
    number: int = 0,
    rate: str = "4xNDR",
) -> str:
    """The output on a rail-optimised fabric of three tiers: `pod` leaf groups of `group` machines under each pod.

    Fabrics of other numbers have other GUIDs.
    """
    words = "\n".join(_lines(machines, group, pod, devices)) + "\n"
    words = words.replace("2c5eab03", f"2c5e{number:02x}03").replace("a088c203", f"a088{number:02x}03")
    return words.replace("4xNDR", rate)


def _lines(machines: int, group: int, pod: int, devices: tuple[str, ...]) -> Iterator[str]:
    rails = len(devices)
    count = -(-machines // group)
    pods = -(-count // pod)
    spines, cores = 32, 16 * pods
    leaf = lambda g, r: 0x2C5EAB0300000000 + g * rails + r  # noqa: E731
    spine = lambda p, s: 0x2C5EAB0310000000 + p * spines + s  # noqa: E731
    core = lambda c: 0x2C5EAB0320000000 + c  # noqa: E731
    nic = lambda m, r: 0xA088C20300000000 + m * rails + r  # noqa: E731
    per_spine = min(32, cores)
    yield "#\n# Topology file: generated\n#"
    yield f"# Initiated from node {nic(0, 0):016x} port {nic(0, 0):016x}"
    for g in range(count):
        for r in range(rails):
            yield from _head("switch", leaf(g, r), 0xD2F2, f'"MF0;leaf-r{r}-g{g}:MQM9700/U1" {REST}')
            for i, m in enumerate(range(g * group, min(machines, (g + 1) * group))):
                yield _to(i + 1, f"H-{nic(m, r):016x}", 1, f"({nic(m, r):x}) ", f"node{m + 1:04d} {devices[r]}")
            for s in range(spines):
                yield _to(33 + s, f"S-{spine(g // pod, s):016x}", g % pod * rails + r + 1, "", f"MF0;s{s}:MQM9700/U1")
    for p in range(pods):
        for s in range(spines):
            yield from _head("switch", spine(p, s), 0xD2F2, f'"MF0;spine-p{p}-s{s}:MQM9700/U1" {REST}')
            for g in range(p * pod, min(count, (p + 1) * pod)):
                for r in range(rails):
                    at = g % pod * rails + r + 1
                    yield _to(at, f"S-{leaf(g, r):016x}", 33 + s, "", f"MF0;leaf-r{r}-g{g}:MQM9700/U1")
            for c in range(per_spine):
                to = (s * per_spine + c) % cores
                yield _to(33 + c, f"S-{core(to):016x}", p * spines + s + 1, "", f"MF0;core-{to}:MQM9700/U1")
    for c in range(cores):
        yield from _head("switch", core(c), 0xD2F2, f'"MF0;core-{c}:MQM9700/U1" {REST}')
        for p in range(pods):
            for s in range(spines):
                at = [(s * per_spine + i) % cores for i in range(per_spine)]
                if c in at:
                    yield _to(p * spines + s + 1, f"S-{spine(p, s):016x}", 33 + at.index(c), "", f"MF0;s{s}:MQM9700/U1")
    for m in range(machines):
        for r in range(rails):
            yield from _head("ca", nic(m, r), 0x1021, f'"node{m + 1:04d} {devices[r]}"')
            yield (
                f'[1]({nic(m, r):x}) \t"S-{leaf(m // group, r):016x}"[{m % group + 1}]\t\t'
                f'# lid 5 lmc 0 "MF0;leaf-r{r}-g{m // group}:MQM9700/U1" lid 1 4xNDR'
            )


def _head(kind: str, guid: int, device: int, comment: str) -> Iterator[str]:
    yield ""
    yield "vendid=0x2c9"
    yield f"devid=0x{device:x}"
    yield f"sysimgguid=0x{guid:x}"
    yield f"{kind}guid=0x{guid:x}" + (f"({guid:x})" if kind == "switch" else "")
    word, letter, ports = ("Switch", "S", 65) if kind == "switch" else ("Ca", "H", 1)
    yield f'{word}\t{ports} "{letter}-{guid:016x}"\t\t# {comment}'


def _to(port: int, peer: str, peer_port: int, own: str, description: str) -> str:
    return f'[{port}]\t"{peer}"[{peer_port}]{own}\t\t# "{description}" lid 7 4xNDR'
