"""Scans of the network: what its tools print is handed to the server, once or again and again; measured bandwidths."""

import subprocess
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from astraeus.cli import output
from astraeus.cli.options import Cluster, Json
from astraeus.cli.session import FAILED, INTERRUPTED, USAGE, failures, network

if TYPE_CHECKING:
    from astraeus.client.network import Output

measured = typer.Typer(help="Measured bandwidths, which replace the estimate's factors.", no_args_is_help=True)

TOOL_SECONDS = 600
COMMANDS: dict[str, list[str]] = {
    "ibnetdiscover": ["ibnetdiscover"],
    "iblinkinfo": ["iblinkinfo", "-l"],
    "ibqueryerrors": ["ibqueryerrors"],
    "sminfo": ["sminfo"],
}
"""How each tool is run here; only the first is needed."""


class Rung(StrEnum):
    """The rungs of the ladder."""

    MACHINE = "machine"
    NVLINK = "nvlink"
    LEAF = "leaf"
    FABRIC_RACK = "fabric_rack"
    FABRIC = "fabric"
    ROCE_LEAF = "roce_leaf"
    ROCE = "roce"
    ETHERNET_RACK = "ethernet_rack"
    ETHERNET = "ethernet"


def _files(tool: str, words: str) -> Any:
    return typer.Option(f"--{tool}", metavar="FILE", help=f"{words}; - is the standard input; repeatable.")


Force = Annotated[bool, typer.Option("--force", help="Apply it even if a fabric lost many links.")]


def scan(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Outputs of any tool, told by their text.")
    ] = None,
    ibnetdiscover: Annotated[list[str] | None, _files("ibnetdiscover", "What ibnetdiscover printed")] = None,
    iblinkinfo: Annotated[list[str] | None, _files("iblinkinfo", "What iblinkinfo -l printed")] = None,
    ibqueryerrors: Annotated[list[str] | None, _files("ibqueryerrors", "What ibqueryerrors printed")] = None,
    sminfo: Annotated[list[str] | None, _files("sminfo", "What sminfo printed")] = None,
    file: Annotated[list[str] | None, _files("file", "A topology file: ours, or Slurm's")] = None,
    every: Annotated[
        float | None, typer.Option("--every", metavar="SECONDS", min=1, help="Scan again and again, until stopped.")
    ] = None,
    force: Force = False,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Scan the network, or hand over what its tools printed elsewhere; without files the tools are run here."""
    given = {"ibnetdiscover": ibnetdiscover, "iblinkinfo": iblinkinfo, "ibqueryerrors": ibqueryerrors}
    named = [(None, files), *given.items(), ("sminfo", sminfo), ("file", file)]
    chosen = [(tool, name) for tool, names in named for name in names or []]
    if every is None:
        _scan_once(chosen, force, cluster, as_json)
        return
    if chosen:
        output.note("astra: --every runs the tools here; it takes no files")
        raise typer.Exit(USAGE)
    while True:
        try:
            with failures():
                _scan_once([], force, cluster, as_json)
        except typer.Exit as ended:
            # The next scan may find the server or the fabric back.
            if ended.exit_code == INTERRUPTED:
                raise
        time.sleep(every)


def _scan_once(chosen: list[tuple[str | None, str]], force: bool, cluster: str | None, as_json: bool) -> None:
    outputs = [_read(tool, name) for tool, name in chosen] if chosen else _run_tools()
    with network(cluster) as calls:
        _show(calls.scan(outputs, force), as_json)


def _read(tool: str | None, name: str) -> "Output":
    from astraeus.client.network import Output

    try:
        data = typer.get_binary_stream("stdin").read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        output.note(f"astra: {name} cannot be read: {error}")
        raise typer.Exit(USAGE) from error
    return Output(data, tool)


def _run_tools() -> "list[Output]":
    from astraeus.client.network import Output

    found = []
    for tool, command in COMMANDS.items():
        try:
            done = subprocess.run(command, capture_output=True, timeout=TOOL_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            output.note(f"astra: {tool} cannot be run here: {error}")
            done = None
        if done is not None and done.stdout.strip():
            found.append(Output(done.stdout, tool))
        elif tool == "ibnetdiscover":
            said = done.stderr.decode("utf-8", "replace").strip() if done else ""
            output.note(f"astra: no network was seen from here; {said or 'run this as root on a host of the fabric'}")
            raise typer.Exit(FAILED)
    return found


def _show(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(answer)
        return
    if answer["state"] == "held":
        output.say(f"The scan is held: {answer['why']}")
        output.say("Apply it with `astra topology apply`, drop it with `astra topology discard`.")
        return
    seen = ", ".join(answer["fabrics"]) or "no fabric"
    output.say(f"{seen}: {answer['machines']} machines, {answer['machines_changed']} changed")
    counts = answer["findings"]
    output.say(f"Findings: {counts['opened']} new, {counts['stayed']} as before, {counts['closed']} closed")
    if answer["runs"]:
        output.say(f"The network changed for {', '.join(answer['runs'])}")
    if answer["unread"]:
        output.note(f"{answer['unread']} lines could not be read:")
        for problem in answer["problems"][:5]:
            output.note(f"  {problem['source']} line {problem['line']}: {problem['text']}")


def apply_held(cluster: Cluster = None, as_json: Json = False) -> None:
    """Apply the scan that is held because it lost many links."""
    with network(cluster) as calls:
        _show(calls.apply_held(), as_json)


def discard(cluster: Cluster = None) -> None:
    """Drop the scan that is held."""
    with network(cluster) as calls:
        calls.discard_held()
    output.say("The scan is dropped; the network is as the last one left it")


def forget(cluster: Cluster = None) -> None:
    """Forget what all scans and files said; the machines' own labels count again."""
    with network(cluster) as calls:
        calls.forget()
    output.say("Scans and files are forgotten")


@measured.command("add")
def add_measured(
    busbw: Annotated[float, typer.Argument(metavar="GB/S", help="The bus bandwidth of an all-reduce, in GB/s.")],
    run: Annotated[str | None, typer.Option("--run", help="The run that measured it; the rest is told by it.")] = None,
    rung: Annotated[Rung | None, typer.Option("--rung", help="The rung it was measured on.")] = None,
    gpu_model: Annotated[str | None, typer.Option("--gpu-model", help="The GPUs, such as H100.")] = None,
    rails: Annotated[int | None, typer.Option("--rails", help="How many ports each machine used.")] = None,
    gbps: Annotated[float | None, typer.Option("--gbps", help="The rate of one port, in Gb/s.")] = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Add a measured bandwidth; the median for a rung and GPU model replaces the estimate's factor."""
    given = {"run": run, "rung": rung and rung.value, "gpu_model": gpu_model, "rails": rails, "gbps": gbps}
    body = {"busbw_gbps": busbw, **{key: value for key, value in given.items() if value is not None}}
    with network(cluster) as calls:
        answer = calls.add_measured(body)
    if as_json:
        output.print_json(answer)
        return
    count = answer["measurements"]
    times = "measurement" if count == 1 else "measurements"
    output.say(f"{answer['rung']} on {answer['gpu_model']}: {answer['value']:g}, the median of {count} {times}")


@measured.command("list")
def list_measured(cluster: Cluster = None, as_json: Json = False) -> None:
    """List what stands for each rung and GPU model."""
    with network(cluster) as calls:
        answer = calls.measured()
    if as_json:
        output.print_json(answer)
        return
    rows = [(one["rung"], one["gpu_model"], f"{one['value']:g}", one["measurements"]) for one in answer["items"]]
    output.table(("RUNG", "GPU MODEL", "VALUE", "MEASUREMENTS"), rows)
