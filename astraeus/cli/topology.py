"""The network as a tree, its faults, and handing it to other schedulers."""

import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer

from astraeus.cli import output, scanning
from astraeus.cli.options import Cluster, Json
from astraeus.cli.session import network

app = typer.Typer(help="The network: fabrics, leaf groups, machines, who holds what; faults; scans.")
app.command("scan")(scanning.scan)
app.command("apply")(scanning.apply_held)
app.command("discard")(scanning.discard)
app.command("forget")(scanning.forget)
app.add_typer(scanning.measured, name="measured")

WIDTH = 80
BRANCH, LAST, DOWN, BLANK = "├─ ", "└─ ", "│  ", "   "
Node = tuple[str, list[Any]]
"""A line and the nodes under it."""


class Scheduler(StrEnum):
    """What the network is written for."""

    SLURM = "slurm"
    SLURM_YAML = "slurm-yaml"
    SLURM_BLOCKS = "slurm-blocks"
    KUEUE = "kueue"


@app.callback(invoke_without_command=True)
def topology(
    context: typer.Context,
    cluster: Cluster = None,
    findings: Annotated[bool, typer.Option("--findings", help="List the faults of the network instead.")] = False,
    as_json: Json = False,
) -> None:
    """Show the network as a tree: fabrics, leaf groups, machines, who holds what."""
    if context.invoked_subcommand:
        return
    if findings:
        show_findings(cluster, False, as_json)
        return
    with network(cluster) as calls:
        answer = calls.tree()
    if as_json:
        output.print_json(answer)
        return
    for found in answer["clusters"]:
        typer.echo("\n".join(tree_lines(_cluster(found, _fabrics(answer)))))
    if answer.get("held"):
        output.note(f"A scan by {answer['held']['actor']} is held: {answer['held']['why']}")
        output.note("Apply it with `astra topology apply`, drop it with `astra topology discard`.")


@app.command("findings")
def show_findings(
    cluster: Cluster = None,
    closed: Annotated[bool, typer.Option("--closed", help="Those closed last instead of the open ones.")] = False,
    as_json: Json = False,
) -> None:
    """List the faults of the network: where, what, what it costs, what to do."""
    with network(cluster) as calls:
        answer = calls.findings(closed)
    if as_json:
        output.print_json(answer)
        return
    for found in answer["items"]:
        typer.echo("\n".join(finding_lines(found)))
    if not answer["items"]:
        output.say("Nothing was found.")


@app.command()
def export(
    scheduler: Annotated[Scheduler, typer.Argument(help="What to write.", show_default=False)], cluster: Cluster = None
) -> None:
    """Write the network for another scheduler: Slurm's topology files, Kueue's topology and node labels."""
    with network(cluster) as calls:
        typer.echo(calls.export(scheduler.value), nl=False)


def finding_lines(found: dict[str, Any]) -> Iterator[str]:
    """A finding: where and what, what it costs, on which runs, what to do; no line longer than a terminal is wide."""
    severity = found.get("severity")
    yield from _wrapped("", f"{f'{severity}: ' if severity else ''}{found.get('place')}: {found.get('message')}")
    priced = found.get("costs") or []
    others = sorted(set(found.get("runs") or ()) - {cost["run"] for cost in priced}, key=output.natural)
    if found.get("cost"):
        yield from _wrapped("  costs: ", str(found["cost"]))
    for cost in priced:
        yield from _wrapped("    ", _cost(cost))
    if others:
        yield from _wrapped("  runs there, no slower: " if priced else "  runs: ", ", ".join(others))
    if found.get("advice"):
        yield from _wrapped("  to do: ", str(found["advice"]))


def _cost(cost: dict[str, Any]) -> str:
    """`resnet: 368.4 → 322.4 GB/s (7 × 400 Gb/s rails, × 0.92)`."""
    without, now = cost["without"], cost["now"]
    return f"{cost['run']}: {without['busbw_gbps']:.1f} → {now['busbw_gbps']:.1f} GB/s ({now['basis']})"


def _wrapped(lead: str, text: str) -> list[str]:
    return textwrap.wrap(
        output.clean(text),
        WIDTH,
        initial_indent=lead,
        subsequent_indent=" " * (len(lead) - len(lead.lstrip()) + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def tree_lines(node: Node, lead: str = "") -> Iterator[str]:
    """A node and everything under it, one line each."""
    text, below = node
    yield text
    for i, child in enumerate(below):
        last = i == len(below) - 1
        first, *rest = tree_lines(child)
        yield lead + (LAST if last else BRANCH) + first
        yield from (lead + (BLANK if last else DOWN) + line for line in rest)


def _fabrics(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What was scanned, by the name of a fabric or of a leaf group."""
    found: dict[str, dict[str, Any]] = {}
    for fabric in answer.get("fabrics") or []:
        found[fabric["name"]] = fabric
        found.update((group["name"], group) for group in fabric["leaf_groups"])
    return found


def _cluster(cluster: dict[str, Any], scanned: dict[str, dict[str, Any]]) -> Node:
    down = sum(machine["state"] != "Ready" for machine in _machines(cluster))
    text = f"{_name(cluster['cluster'])}: {_count(cluster['machines'], 'machine')}, {_free(cluster)}"
    text += f", {down} down" if down else ""
    return text, [_fabric(fabric, scanned) for fabric in cluster["fabrics"]]


def _machines(cluster: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for fabric in cluster["fabrics"]:
        for spine in fabric["spines"]:
            for leaf in spine["leaves"]:
                yield from leaf["machines"]


def _fabric(fabric: dict[str, Any], scanned: dict[str, dict[str, Any]]) -> Node:
    name = f"fabric {_name(fabric['name'])}" if fabric["name"] else "on no fabric"
    spines = [_spine(spine, scanned) for spine in fabric["spines"]]
    # A fabric without named spine groups reads better without an empty level.
    below = [child for name_, children in spines for child in ([(name_, children)] if name_ else children)]
    return f"{name}: {_free(fabric)}", below


def _spine(spine: dict[str, Any], scanned: dict[str, dict[str, Any]]) -> Node:
    leaves = [_leaf(leaf, scanned.get(leaf["name"], {})) for leaf in spine["leaves"]]
    return (f"spine group {_name(spine['name'])}: {_free(spine)}" if spine["name"] else "", leaves)


def _leaf(leaf: dict[str, Any], scanned: dict[str, Any]) -> Node:
    name = f"leaf group {_name(leaf['name'])}" if leaf["name"] else "in no leaf group"
    whole = f", {_count(leaf['free_machines'], 'whole machine')} free"
    if scanned.get("oversubscription_live"):
        whole += f", {scanned['oversubscription_live']:g}:1 to the spines"
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
