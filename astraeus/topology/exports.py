"""The network for other schedulers: Slurm's topology.conf and topology.yaml, Kueue's topology and labels."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from astraeus.model.machine import FABRIC, LEAF, NVLINK, ROCE, SPINE
from astraeus.topology.hostlist import compress
from astraeus.topology.owners import natural
from astraeus.topology.tree import Located

KUEUE_LEVELS = (FABRIC, SPINE, LEAF)
LABEL_MOST = 63
HOSTNAME = "kubernetes.io/hostname"
Switch = tuple[str, str, str]
"""A switch of Slurm's: its name, the switches under it, or its nodes."""


def slurm_conf(machines: Iterable[Located]) -> str:
    """topology.conf for topology/tree. A leaf group is one switch there; every fabric is a tree."""
    switches, without = _switches(machines)
    lines = [
        f"SwitchName={name} " + (f"Nodes={nodes}" if nodes else f"Switches={children}")
        for name, children, nodes in switches
    ]
    return "".join(f"{line}\n" for line in [*_left_out(without), *lines])


def slurm_yaml(machines: Iterable[Located], name: str = "astraeus") -> str:
    """topology.yaml (Slurm 25.05 and later) with the same tree."""
    switches, without = _switches(machines)
    entries = [
        {"switch": switch, **({"nodes": nodes} if nodes else {"children": children})}
        for switch, children, nodes in switches
    ]
    document = [{"topology": name, "cluster_default": True, "tree": {"switches": entries}}]
    head = "".join(f"{line}\n" for line in _left_out(without))
    return head + "---\n" + yaml.safe_dump(document, sort_keys=False)


def slurm_blocks(machines: Iterable[Located]) -> str:
    """topology.conf for topology/block: a block is an NVLink domain, or a leaf group where there is none."""
    blocks: dict[str, list[str]] = defaultdict(list)
    without = []
    for machine in machines:
        block = machine.labels.get(NVLINK) or machine.labels.get(LEAF)
        if block:
            blocks[block].append(machine.name)
        else:
            without.append(machine.name)
    lines = _left_out(without)
    lines += [f"BlockName={_word(name)} Nodes={compress(blocks[name])}" for name in sorted(blocks, key=natural)]
    if blocks:
        size = min(len(names) for names in blocks.values())
        sizes = [size << step for step in range(16) if size << step <= size * len(blocks)]
        lines.append(f"BlockSizes={','.join(map(str, sizes))}")
    return "".join(f"{line}\n" for line in lines)


def kueue(machines: Sequence[Located], name: str = "astraeus") -> str:
    """Kueue's Topology (0.15 and later) and the labels of its nodes, for `kubectl apply --server-side`."""
    placed = [machine for machine in machines if machine.labels.get(LEAF)]
    levels = [level for level in KUEUE_LEVELS if placed and all(machine.labels.get(level) for machine in placed)]
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": level} for level in (*levels, HOSTNAME)]},
    }
    keys = (*levels, NVLINK)
    nodes = [_node(machine, keys) for machine in sorted(placed, key=lambda machine: natural(machine.name))]
    return yaml.safe_dump_all([topology, *nodes], sort_keys=False, explicit_start=True)


def _node(machine: Located, keys: Iterable[str]) -> dict[str, Any]:
    labels = {key: _label(machine.labels[key]) for key in keys if machine.labels.get(key)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name, "labels": labels}}


def _label(value: str) -> str:
    """A value as Kubernetes takes it: 63 letters, digits, dashes, dots and underscores, the first and last no sign."""
    word = re.sub(r"[^A-Za-z0-9._-]", "-", value).strip("-._")
    if word == value and len(word) <= LABEL_MOST:
        return word
    # Two values that differ in other signs alone, or far behind, stay two.
    mark = hashlib.blake2b(value.encode(), digest_size=4).hexdigest()
    return f"{word[: LABEL_MOST - len(mark) - 1]}-{mark}".lstrip("-")


def _switches(machines: Iterable[Located]) -> tuple[list[Switch], list[str]]:
    """The switches of all trees, the lowest first, and the machines in no leaf group."""
    nodes: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    without = []
    for machine in machines:
        labels = machine.labels
        if labels.get(LEAF):
            top = labels.get(FABRIC) or labels.get(ROCE) or ""
            nodes[top, labels.get(SPINE) or "", labels[LEAF]].append(machine.name)
        else:
            without.append(machine.name)
    names = _unique(nodes)
    found: list[Switch] = [(names[key], "", compress(nodes[key])) for key in sorted(nodes, key=_natural)]
    spines: dict[tuple[str, str], list[str]] = defaultdict(list)
    tops: dict[str, list[str]] = defaultdict(list)
    for key in sorted(nodes, key=_natural):
        if key[1]:
            spines[key[:2]].append(names[key])
        elif key[0]:
            tops[key[0]].append(names[key])
    several = [spine for _, spine in spines]
    used = set(names.values())
    for top, spine in sorted(spines, key=_natural):
        word = _free(spine if several.count(spine) == 1 else f"{top}-{spine}", used)
        found.append((word, ",".join(spines[top, spine]), ""))
        if top:
            tops[top].append(word)
    found.extend((_free(top, used), ",".join(tops[top]), "") for top in sorted(tops, key=natural))
    return found, without


def _unique(nodes: Mapping[tuple[str, str, str], object]) -> dict[tuple[str, str, str], str]:
    """A leaf group's name, with its fabric where two fabrics have the same."""
    leaves = [key[2] for key in nodes]
    return {key: _word(key[2] if leaves.count(key[2]) == 1 else f"{key[0]}-{key[1]}-{key[2]}") for key in nodes}


def _free(name: str, used: set[str]) -> str:
    """A name that no other switch has: some networks call two tiers the same."""
    word = _word(name)
    while word in used:
        word += "-up"
    used.add(word)
    return word


def _natural(key: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(natural(part) for part in key)


def _word(name: str) -> str:
    """A name as Slurm takes it: without blanks, commas and signs of its own grammar."""
    return "".join(c if c.isalnum() or c in "-_.:" else "-" for c in name)


def _left_out(machines: Sequence[str]) -> list[str]:
    return [f"# in no leaf group, left out: {compress(machines)}"] if machines else []
