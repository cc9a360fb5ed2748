"""Quotas and fair shares of the workspaces of a cluster."""

import math
from contextlib import suppress
from typing import Annotated, Any

import typer

from astraeus.cli import output
from astraeus.cli.options import Cluster, Json
from astraeus.cli.session import USAGE, api

app = typer.Typer(help="Quotas and fair shares of workspaces.", no_args_is_help=True)
Quota = Annotated[str | None, typer.Option("--quota", metavar="GPUS", help="At most so many at a time, or none.")]
Share = Annotated[str | None, typer.Option("--share", metavar="WEIGHT", help="Its weight among all, or none.")]
NONE = "none"


@app.command("list")
def list_(cluster: Cluster = None, as_json: Json = False) -> None:
    """List how the workspaces stand."""
    with api() as calls:
        page = calls.shares(cluster)
    if as_json:
        output.print_json(page)
    else:
        output.table(("WORKSPACE", "QUOTA", "IN USE", "SHARE", "USED"), map(_row, page["items"]))


@app.command("set")
def set_(quota: Quota = None, share: Share = None, cluster: Cluster = None, as_json: Json = False) -> None:
    """Set the quota or the share of the workspace; with an operator's token."""
    due: dict[str, Any] = {}
    if quota is not None:
        due["gpu_quota"] = _number(quota, int, "--quota is a number of GPUs")
    if share is not None:
        due["share"] = _number(share, float, "--share is a weight")
    if not due:
        output.note("astra: say what to set: --quota GPUS or --share WEIGHT; none takes it away")
        raise typer.Exit(USAGE)
    with api() as calls:
        view = calls.set_share(due, cluster)
    if as_json:
        output.print_json(view)
    else:
        output.table(("WORKSPACE", "QUOTA", "IN USE", "SHARE", "USED"), [_row(view)])


def _number(text: str, kind: type[int] | type[float], what: str) -> int | float | None:
    if text == NONE:
        return None
    # A whole number that is too long to be finite is one of no GPUs.
    with suppress(ValueError, OverflowError):
        if math.isfinite(number := kind(text)):
            return number
    output.note(f"astra: {what}, or none, not {text!r}")
    raise typer.Exit(USAGE)


def _row(view: dict[str, Any]) -> tuple[object, ...]:
    share = "-" if view.get("share") is None else f"{view['share']:g}"
    if view.get("share_of_all") is not None:
        share += f" ({100 * view['share_of_all']:.0f} %)"
    used = "-"
    if view.get("used_gpu_hours") is not None:
        used = f"{view['used_gpu_hours']:.1f} GPU-hours ({100 * view['used_of_all']:.0f} %)"
    quota = "-" if view.get("gpu_quota") is None else view["gpu_quota"]
    return view["workspace"], quota, view["gpus_in_use"], share, used
