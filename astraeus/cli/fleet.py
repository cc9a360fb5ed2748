"""Machines, clusters and the network between them."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from astraeus.cli import output
from astraeus.cli.options import Cluster, Json, Machine
from astraeus.cli.session import api

machines = typer.Typer(help="Machines: who holds them, and taking them out of work.", no_args_is_help=True)
Reason = Annotated[str | None, typer.Option("--reason", help="Why; shown to everybody.")]


@machines.command("list")
def list_(cluster: Cluster = None, as_json: Json = False) -> None:
    """List the machines."""
    columns = ("NAME", "CLUSTER", "STATE", "FREE", "MODEL", "LEAF", "RUNS")
    with api() as calls:
        found = sorted(calls.machines(cluster), key=lambda machine: output.natural(machine["name"]))
        output.listing(found, columns, _row, as_json)


def _row(machine: dict[str, Any]) -> tuple[object, ...]:
    leaf = machine.get("labels", {}).get("topology.astraeus.io/leaf", "-")
    free = f"{machine['free_gpus']}/{machine['gpus']}"
    used = ", ".join(machine.get("runs") or []) or "-"
    return machine["name"], machine["cluster"], _state(machine), free, machine.get("gpu_model") or "-", leaf, used


def _state(machine: dict[str, Any]) -> str:
    state = str(machine["state"])
    if machine.get("drain_reason") is not None:
        return f"{state},drained"
    return f"{state},cordoned" if machine.get("cordoned") else state


@machines.command()
def get(machine: Machine, cluster: Cluster = None, as_json: Json = False) -> None:
    """Show one machine."""
    with api() as calls:
        found = calls.machine(machine, cluster)
    if as_json:
        output.print_json(found)
        return
    output.facts(_facts(found))
    if found.get("nics"):
        typer.echo()
        columns = ("PORT", "RAIL", "GBIT/S", "LINK", "STATE")
        output.table(columns, map(_nic_row, found["nics"]))


def _nic_row(nic: dict[str, Any]) -> tuple[object, ...]:
    state = "up" if nic["up"] else "down"
    return f"{nic['device']}:{nic['port']}", nic["rail"], f"{nic['gbps']:g}", nic["link"], state


def _facts(machine: dict[str, Any]) -> Iterator[tuple[str, object]]:
    yield "Machine", machine["name"]
    yield "Cluster", machine["cluster"]
    yield "State", _state(machine)
    if machine.get("drain_reason") is not None:
        yield "Drained", f"by {machine.get('drained_by')}: {machine['drain_reason']}"
    model = machine.get("gpu_model") or ""
    yield "GPUs", f"{machine['gpus']} {model}, {machine['free_gpus']} free".replace("  ", " ")
    for name, key in (("Doubtful", "doubtful_gpus"), ("Broken", "broken_gpus")):
        if machine.get(key):
            yield name, f"GPU {output.numbers(machine[key])}"
    yield "CPU", f"{machine['cpu_cores']:g} cores, {output.gib(machine['memory_bytes'])}"
    yield "Runs", ", ".join(machine.get("runs") or []) or "none"
    if machine.get("heard_seconds_ago") is not None:
        yield "Heard", f"{machine['heard_seconds_ago']:.0f} s ago"
    for key, value in sorted(machine.get("labels", {}).items()):
        yield "Label", f"{key}={value}"


@machines.command()
def drain(machine: Machine, reason: Reason = None, cluster: Cluster = None) -> None:
    """Take a machine out of work and move its runs away; they are not charged."""
    _order(machine, "drain", reason, cluster, "is drained; its runs move away")


@machines.command()
def cordon(machine: Machine, reason: Reason = None, cluster: Cluster = None) -> None:
    """Give a machine no new work; what runs there goes on."""
    _order(machine, "cordon", reason, cluster, "takes no new work")


@machines.command("return")
def return_(machine: Machine, cluster: Cluster = None) -> None:
    """Give a machine work again."""
    _order(machine, "return", None, cluster, "takes work again")


@machines.command()
def lost(machine: Machine, cluster: Cluster = None) -> None:
    """Declare a silent machine lost, also while the watch holds such declarations back; its gangs restart elsewhere."""
    _order(machine, "lost", None, cluster, "is declared lost")


def _order(machine: str, order: str, reason: str | None, cluster: str | None, done: str) -> None:
    with api() as calls:
        calls.machine_order(machine, order, reason, cluster)
    output.say(f"{machine} {done}")


def clusters(as_json: Json = False) -> None:
    """List the clusters."""
    with api() as calls:
        output.listing(calls.clusters(), ("NAME", "EXECUTOR", "DEFAULT"), _cluster_row, as_json)


def _cluster_row(one: dict[str, Any]) -> tuple[object, ...]:
    return one["name"], one.get("executor"), "yes" if one.get("default") else "no"
