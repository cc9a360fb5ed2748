"""`astra`, the command line: every command, in the order of its help."""

from pathlib import Path
from typing import Annotated

import typer

from astraeus.cli import belongings, fleet, local, logs, offline, runs, shares, simulate, submit, templates, topology
from astraeus.cli.bundle import bundle
from astraeus.cli.session import Root, given

app = typer.Typer(
    name="astra",
    cls=Root,
    help="Run large distributed training. `astra astraeus …` is the same as `astra …`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
RUNS, FLEET, WORKSPACE, LOCAL = "Runs", "Machines", "Workspace", "This computer"


@app.callback()
def options(
    address: Annotated[
        str | None, typer.Option("--api", metavar="URL", help="The API's base; else ASTRALYX_API, or as stored.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Holds the token; - is the standard input.")
    ] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0.1, help="Seconds for one answer.")] = None,
) -> None:
    """Keep the options before the command; those after a middle `astraeus` add to them."""
    values = {"api": address, "token_file": token_file, "timeout": timeout}
    given.update({key: value for key, value in values.items() if value is not None})


for command in (
    submit.run,
    runs.runs,
    runs.get,
    runs.explain,
    logs.logs,
    runs.events,
    runs.attempts,
    runs.cancel,
    runs.preempt,
    runs.restart,
    runs.hold,
    runs.release,
    runs.delete,
):
    app.command(rich_help_panel=RUNS)(command)
app.add_typer(templates.app, name="templates", rich_help_panel=WORKSPACE)
app.add_typer(belongings.drives, name="drives", rich_help_panel=WORKSPACE)
app.add_typer(belongings.secrets, name="secrets", rich_help_panel=WORKSPACE)
app.add_typer(belongings.tokens, name="tokens", rich_help_panel=WORKSPACE)
app.add_typer(shares.app, name="shares", rich_help_panel=WORKSPACE)
app.add_typer(fleet.machines, name="machines", rich_help_panel=FLEET)
app.add_typer(topology.app, name="topology", rich_help_panel=FLEET)
app.command(rich_help_panel=FLEET)(fleet.clusters)
app.command(rich_help_panel=FLEET)(offline.plan)
app.command(rich_help_panel=FLEET)(simulate.simulate)
app.command(rich_help_panel=LOCAL)(local.login)
app.command(rich_help_panel=LOCAL, context_settings=local.PASS_ON)(local.dev)
app.command(rich_help_panel=LOCAL, context_settings=local.PASS_ON)(local.agent)
app.command(rich_help_panel=LOCAL)(bundle)
app.command(rich_help_panel=LOCAL)(local.version)


def main() -> None:
    """Run the command that the arguments name."""
    app(prog_name="astra")


if __name__ == "__main__":
    main()
