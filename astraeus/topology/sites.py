"""Networks as people write them down: our YAML, Slurm's topology.conf and topology.yaml, topograph's graph."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from astraeus.model.machine import FABRIC, LEAF, NVLINK, RACK, ROCE, SPINE
from astraeus.topology.hostlist import expand

SLURM_LINE = re.compile(r"\s*(switchname|blockname|blocksizes)\s*=", re.IGNORECASE)
SLURM_PAIR = re.compile(r"(\w+)\s*=\s*(\S+)")
DEPTH_MOST = 32
TEXT_MOST = 16 * 1024 * 1024


@dataclass
class Site:
    """Our labels for each machine that a file names, and what could not be read."""

    places: dict[str, dict[str, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def put(self, machines: object, labels: Mapping[str, str]) -> None:
        """Label these machines; a second place of the same kind for one of them is a problem, and is not taken."""
        for name in self._names(machines):
            mine = self.places.setdefault(name, {})
            for key, value in labels.items():
                if mine.setdefault(key, value) != value:
                    self.problems.append(f"{name} has both {key.rpartition('/')[2]} {mine[key]} and {value}")

    def _names(self, machines: object) -> list[str]:
        words = ",".join(map(str, machines)) if isinstance(machines, list) else str(machines or "")
        try:
            return [name.lower() for name in expand(words)]
        except ValueError as error:
            self.problems.append(str(error))
            return []


@dataclass
class _Switch:
    """A switch of Slurm's: names of those under it, or nodes."""

    children: list[str] = field(default_factory=list)
    nodes: str = ""


def looks_like(text: str) -> bool:
    """Whether this may be such a file at all."""
    if any(SLURM_LINE.match(line) for line in text.splitlines()[:400]):
        return True
    head = [line for line in text.splitlines()[:400] if line.strip() and not line.lstrip().startswith("#")]
    first = head[0].strip() if head else ""
    return first == "---" or bool(re.match(r"(-\s*topology|fabrics|racks|nvlink_domains|instances)\s*:|\{", first))


def parse(text: str) -> Site:
    """Any of the forms."""
    if any(SLURM_LINE.match(line) for line in text.splitlines()[:400]):
        return parse_slurm(text)
    site = Site()
    try:
        document = yaml.safe_load(text[:TEXT_MOST])
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        site.problems.append(f"this is no YAML: {str(error).splitlines()[0] if str(error) else 'unreadable'}")
        return site
    if isinstance(document, list):
        for one in document:
            _slurm_topology(site, one)
    elif isinstance(document, dict):
        _ours(site, document)
        _graph(site, document)
    else:
        site.problems.append("this is neither a list of topologies nor a mapping with fabrics")
    return site


def _dicts(value: object) -> Iterator[Mapping[str, Any]]:
    """The mappings in what should be a list of them."""
    yield from (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def _ours(site: Site, document: Mapping[str, Any]) -> None:
    for fabric in _dicts(document.get("fabrics")):
        name = str(fabric.get("name") or "")
        wide = {ROCE if fabric.get("kind") == "roce" else FABRIC: name} if name else {}
        site.put(fabric.get("machines"), wide)
        for spine in _dicts(fabric.get("spines")):
            middle = wide | ({SPINE: str(spine["name"])} if spine.get("name") else {})
            site.put(spine.get("machines"), middle)
            _leaves(site, spine.get("leaves"), middle)
        _leaves(site, fabric.get("leaves"), wide)
    for key, label in (("racks", RACK), ("nvlink_domains", NVLINK)):
        listed = document.get(key)
        for name, machines in listed.items() if isinstance(listed, dict) else ():
            site.put(machines, {label: str(name)})


def _leaves(site: Site, leaves: object, labels: Mapping[str, str]) -> None:
    for leaf in _dicts(leaves):
        site.put(leaf.get("machines"), {**labels, LEAF: str(leaf.get("name") or "")} if leaf.get("name") else labels)


def _graph(site: Site, document: Mapping[str, Any]) -> None:
    """topograph's own: layers of each instance, the closest first."""
    for instance in _dicts(document.get("instances")):
        layers = instance.get("network_layers")
        values = [str(layer) for layer in layers] if isinstance(layers, list) else []
        labels = {key: value for key, value in zip((LEAF, SPINE, FABRIC), values, strict=False) if value}
        if instance.get("id") and labels:
            site.put(str(instance["id"]), labels)


def parse_slurm(text: str) -> Site:
    """topology.conf: a tree of switches, or blocks."""
    site = Site()
    switches: dict[str, _Switch] = {}
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition("#")[0].strip()
        pairs = {key.lower(): value for key, value in SLURM_PAIR.findall(words)}
        if "switchname" in pairs:
            switches[pairs["switchname"]] = _Switch(_listed(site, pairs.get("switches", "")), pairs.get("nodes", ""))
        elif "blockname" in pairs:
            site.put(pairs.get("nodes"), {LEAF: pairs["blockname"]})
        elif words and "blocksizes" not in pairs:
            site.problems.append(f"{words[:120]!r} is no line of topology.conf")
    _tree(site, switches)
    return site


def _listed(site: Site, words: str) -> list[str]:
    try:
        return expand(words)
    except ValueError as error:
        site.problems.append(str(error))
        return []


def _slurm_topology(site: Site, one: object) -> None:
    """An entry of topology.yaml."""
    if not isinstance(one, dict):
        site.problems.append(f"{str(one)[:80]!r} is no topology")
        return
    tree, block = one.get("tree"), one.get("block")
    if isinstance(tree, dict):
        switches = {
            str(switch.get("switch")): _Switch(
                _listed(site, str(switch.get("children") or "")), str(switch.get("nodes") or "")
            )
            for switch in _dicts(tree.get("switches"))
        }
        _tree(site, switches)
    if isinstance(block, dict):
        for entry in _dicts(block.get("blocks")):
            site.put(str(entry.get("nodes") or ""), {LEAF: str(entry.get("block"))})


def _tree(site: Site, switches: Mapping[str, _Switch]) -> None:
    """Switches with nodes are leaf groups, those above them spine groups, the topmost fabrics."""
    parent = {child: name for name, switch in switches.items() for child in switch.children}
    for name, switch in switches.items():
        if not switch.nodes:
            continue
        above = [name]
        while above[-1] in parent and len(above) < DEPTH_MOST and parent[above[-1]] not in above:
            above.append(parent[above[-1]])
        labels = {LEAF: name}
        if len(above) > 1:
            labels |= {SPINE: above[1], FABRIC: above[-1]}
        site.put(switch.nodes, labels)
