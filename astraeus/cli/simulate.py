"""`astra simulate`: a trace replayed on a fleet by the real planner, in simulated time."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astraeus.cli import output
from astraeus.cli.options import Json
from astraeus.cli.session import USAGE

if TYPE_CHECKING:
    from astraeus.agent.fleet import Fleet
    from astraeus.placement.types import Machine
    from astraeus.simulator.trace import Job


def simulate(
    trace: Annotated[
        Path | None, typer.Argument(metavar="TRACE", help="CSV: submit_s, gpus, duration_s, and priority, limit_s.")
    ] = None,
    fleet: Annotated[
        Path | None, typer.Option("--fleet", metavar="FILE", help="The machines, as for `astra dev`.")
    ] = None,
    generate: Annotated[int, typer.Option("--generate", metavar="N", help="Instead of a trace, N jobs.")] = 0,
    urgent: Annotated[float, typer.Option(min=0, max=1, help="The share of generated jobs that may preempt.")] = 0.0,
    load: Annotated[
        float | None, typer.Option(min=0.01, max=10, help="Submit so fast that this share of the GPUs is asked for.")
    ] = None,
    jobs_most: Annotated[int | None, typer.Option("--jobs", metavar="N", min=1, help="Only the first N jobs.")] = None,
    failures: Annotated[float, typer.Option(min=0, help="Machine failures per 1,000 node-days.")] = 0.0,
    repair_hours: Annotated[float, typer.Option(min=0, help="Until a failed machine is back.")] = 4.0,
    checkpoint_minutes: Annotated[float, typer.Option(min=0, help="Between checkpoints; 0 loses nothing.")] = 30.0,
    start_minutes: Annotated[float, typer.Option(min=0, help="What each start takes before work goes on.")] = 0.0,
    patience_minutes: Annotated[float, typer.Option(min=0, help="How long a gang waits for a tighter rung.")] = 0.0,
    keep_within: Annotated[str, typer.Option(help="How far gangs may be spread.")] = "any",
    seed: Annotated[int, typer.Option(help="Of generated jobs and of failures.")] = 0,
    png: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Draw it; needs the extra `sim`.")] = None,
    as_json: Json = False,
) -> None:
    """Replay a trace on a fleet: utilisation, waiting time, leaf groups used, preemptions, work lost, goodput."""
    from astraeus.agent.fleet import default_fleet, load_fleet
    from astraeus.simulator.engine import Options, Simulation
    from astraeus.simulator.trace import scaled

    machines = machines_of(load_fleet(fleet or default_fleet()))
    gpus = sum(machine.gpus for machine in machines)
    jobs = _jobs(trace, generate, seed, gpus, urgent)[:jobs_most]
    options = Options(
        failures_per_1000_days=failures,
        repair_seconds=repair_hours * 3600,
        checkpoint_seconds=checkpoint_minutes * 60,
        start_seconds=start_minutes * 60,
        patience_seconds=int(patience_minutes * 60),
        keep_within=_known(keep_within),
        seed=seed,
    )
    outcome = Simulation(machines, scaled(jobs, gpus, load) if load else jobs, options).run()
    if png is not None:
        from astraeus.simulator.plot import draw

        draw(outcome, png)
    if as_json:
        output.print_json(outcome.figures())
        return
    output.facts(outcome.rows())
    output.table(("GPUS", "JOBS", "WAITED", "90 %", "LONGEST"), outcome.waiting_rows())


def machines_of(fleet: "Fleet") -> "tuple[Machine, ...]":
    """The machines of a fleet file as the planner sees them."""
    from astraeus.placement.types import Machine

    return tuple(
        Machine(
            name=facts.name,
            gpus=facts.gpus,
            gpu_model=facts.gpu_model,
            cpu_cores=facts.cpu_cores,
            memory_bytes=facts.memory_bytes,
            labels=facts.labels,
            ports=tuple(facts.nics),
            broken=sum(1 << gpu for gpu in set(facts.broken_gpus)),
            doubtful=sum(1 << gpu for gpu in set(facts.doubtful_gpus)),
        )
        for facts in fleet.machines
    )


def _jobs(trace: Path | None, generated: int, seed: int, gpus: int, urgent: float) -> "list[Job]":
    from astraeus.simulator.trace import generate, read_trace

    if (trace is None) == (generated < 1):
        output.note("astra: name a TRACE, or say how many jobs to --generate")
        raise typer.Exit(USAGE)
    return read_trace(trace) if trace else generate(generated, seed, gpus, urgent)


def _known(keep_within: str) -> str:
    from typing import get_args

    from astraeus.model.spec import KeepWithin

    if keep_within not in get_args(KeepWithin):
        raise typer.BadParameter(f"one of {', '.join(get_args(KeepWithin))}", param_hint="--keep-within")
    return keep_within
