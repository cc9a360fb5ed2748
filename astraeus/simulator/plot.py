"""A replay as a picture; needs the extra `sim`."""

from pathlib import Path
from typing import Any

from astraeus.model.errors import Invalid
from astraeus.simulator.outcome import Outcome

DAY, HOUR = 86_400.0, 3600.0


def draw(outcome: Outcome, path: Path) -> None:
    """Write a PNG: utilisation and queue over time, waiting time by size, leaf groups used per gang."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Invalid("drawing needs matplotlib: pip install 'astraeus-orchestrator[sim]'") from error
    figure: Any = Figure(figsize=(12, 8), layout="constrained")
    axes = figure.subplots(2, 2)
    days = [moment.at / DAY for moment in outcome.moments]
    _over_time(axes[0][0], days, [moment.used / max(outcome.gpus, 1) for moment in outcome.moments], "GPUs held, share")
    _over_time(axes[0][1], days, [moment.waiting for moment in outcome.moments], "GPUs waited for")
    waits = outcome.waits()
    if waits:
        axes[1][0].boxplot([[1 + wait for wait in found] for found in waits.values()], tick_labels=list(waits))
    axes[1][0].set(yscale="log", title="Seconds to the first start (+1)", xlabel="GPUs of the job")
    ratios = outcome.leaf_ratios()
    axes[1][1].scatter([size for size, _ in ratios], [ratio for _, ratio in ratios], s=8, alpha=0.4)
    axes[1][1].set(title="Leaf groups used / fewest possible", xlabel="machines of the gang")
    figure.suptitle(
        f"utilisation {outcome.utilisation():.1%}, leaf groups {outcome.leaf_ratio():.3f}, "
        f"goodput {outcome.goodput():.2%}, {outcome.preemptions} preemptions, {outcome.failures} failures, "
        f"{outcome.lost / HOUR:,.0f} GPU-hours lost"
    )
    try:
        figure.savefig(path, dpi=110, format="png")
    except OSError as error:
        raise Invalid(f"cannot write {path}: {error}") from error


def _over_time(axes: Any, days: list[float], values: list[float], title: str) -> None:
    axes.step(days, values, where="post", linewidth=0.8)
    axes.set(title=title, xlabel="days")
