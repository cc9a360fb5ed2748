"""Arguments and options that several commands share."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the API's JSON.")]
Run = Annotated[str, typer.Argument(metavar="RUN", show_default=False, help="Name or uid of the run.")]
Why = Annotated[str | None, typer.Option("--why", help="The reason, kept with the event.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value, such as spec.priority=5; repeatable."),
]
Label = Annotated[list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="A label; repeatable.")]
Cluster = Annotated[str | None, typer.Option("--cluster", help="Only this cluster.")]
Machine = Annotated[str, typer.Argument(metavar="MACHINE", show_default=False, help="Name of the machine.")]
