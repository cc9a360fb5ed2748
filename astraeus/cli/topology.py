"""The network as a tree, and its faults."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from astraeus.cli import output
from astraeus.cli.options import Cluster, Json
from astraeus.cli.session import api

BRANCH, LAST, DOWN, BLANK = "├─ ", "└─ ", "│  ", "   "
Node = tuple[str, list[Any]]
"""A line and the nodes under it."""


def topology(
    cluster: Cluster = None,
    findings: Annotated[bool, typer.Option("--findings", help="List the faults of the network instead.")] = False,
    as_json: Json = False,
) -> None:
    """Show the network as a tree: fabrics, leaf groups, machines, who holds what."""
    with api() as calls:
        answer = calls.findings() if findings else calls.topology(cluster)
    if as_json:
        output.print_json(answer)
    elif findings:
        rows = [(found.get("place"), found.get("message")) for found in answer["items"]]
        output.table(("PLACE", "FINDING"), rows)
    else:
        for found in answer["clusters"]:
            typer.echo("\n".join(tree_lines(_cluster(found))))


def tree_lines(node: Node, lead: str = "") -> Iterator[str]:
    """A node and everything under it, one line each."""
    text, below = node
    yield text
    for i, child in enumerate(below):
        last = i == len(below) - 1
        first, *rest = tree_lines(child)
        yield lead + (LAST if last else BRANCH) + first
        yield from (lead + (BLANK if last else DOWN) + line for line in rest)


def _cluster(cluster: dict[str, Any]) -> Node:
    text = f"{_name(cluster['cluster'])}: {_count(cluster['machines'], 'machine')}, {_free(cluster)}"
    return text, [_fabric(fabric) for fabric in cluster["fabrics"]]


def _fabric(fabric: dict[str, Any]) -> Node:
    name = f"fabric {_name(fabric['name'])}" if fabric["name"] else "on no fabric"
    spines = [_spine(spine) for spine in fabric["spines"]]
    # A fabric without named spine groups reads better without an empty level.
    below = [child for name_, children in spines for child in ([(name_, children)] if name_ else children)]
    return f"{name}: {_free(fabric)}", below


def _spine(spine: dict[str, Any]) -> Node:
    leaves = [_leaf(leaf) for leaf in spine["leaves"]]
    return (f"spine group {_name(spine['name'])}: {_free(spine)}" if spine["name"] else "", leaves)


def _leaf(leaf: dict[str, Any]) -> Node:
    name = f"leaf group {_name(leaf['name'])}" if leaf["name"] else "in no leaf group"
    whole = f", {_count(leaf['free_machines'], 'whole machine')} free"
    machines = sorted(leaf["machines"], key=lambda machine: output.natural(machine["name"]))
    return f"{name}: {_free(leaf)}{whole}", [_machine(machine) for machine in machines]


def _machine(machine: dict[str, Any]) -> Node:
    parts = [
        f"{_name(machine['name'])}  {machine['free_gpus']}/{machine['gpus']} {_name(machine['gpu_model'])}".rstrip()
    ]
    if machine["state"] != "Ready":
        parts.append(str(machine["state"]))
    if machine.get("cordoned"):
        parts.append("cordoned")
    if machine.get("runs"):
        parts.append(", ".join(map(_name, machine["runs"])))
    return "  ".join(parts), []


def _free(node: dict[str, Any]) -> str:
    return f"{node['free_gpus']} of {_count(node['gpus'], 'GPU')} free"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _name(value: object) -> str:
    return output.clean(value)
