"""Why a run waits, and what would happen to a specification now."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from astraeus.cli import output

Fact = tuple[str, object]


def show_plan(plan: Mapping[str, Any]) -> None:
    """What would happen to a specification now."""
    output.facts(_plan_facts(plan))


def show_explanation(explanation: Mapping[str, Any]) -> None:
    """Why a run is where it is."""
    output.facts(_explanation_facts(explanation))


def network_facts(network: Mapping[str, Any] | None) -> Iterator[Fact]:
    """The network a run got or would get."""
    if network:
        yield "Network", f"{network['network']} ({network['words']})"
        if estimate := network.get("estimate"):
            yield "Expected", f"{estimate['busbw_gbps']} GB/s all-reduce ({estimate['basis']})"


def _plan_facts(plan: Mapping[str, Any]) -> Iterator[Fact]:
    yield "Cluster", plan["cluster"]
    victims = ", ".join(plan.get("victims") or [])
    starts = f"start now, after preempting {victims}" if victims else "start now"
    yield "Would", starts if plan["fits"] else "wait"
    yield from network_facts(plan.get("network"))
    if plan.get("machines"):
        yield "Machines", ", ".join(plan["machines"])
    if plan.get("reason"):
        yield "Reason", plan["reason"]
    yield from _each("Blockers", plan.get("blockers"))


def _explanation_facts(explanation: Mapping[str, Any]) -> Iterator[Fact]:
    yield "Run", f"{explanation['name']} on {explanation['cluster']}"
    yield "State", explanation["state"]
    yield "Reason", explanation["reason"]
    if explanation.get("position") is not None:
        yield "Position", f"{explanation['position']} in the queue"
    yield from _each("Blockers", explanation.get("blockers"))
    yield from _each("Unblock", explanation.get("unblock"))
    if explanation.get("expected_start"):
        yield "Start", _start(str(explanation["expected_start"]))


def _start(when: str) -> str:
    return "unknown" if when == "unknown" else f"could start at {output.clock(when)}"


def _each(name: str, values: Iterable[object] | None) -> Iterator[Fact]:
    for i, value in enumerate(values or ()):
        yield "" if i else name, value
