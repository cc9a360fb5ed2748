"""Why a run waits, and what would happen to a specification now."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from astraeus.cli import output

Fact = tuple[str, object]
UNKNOWN = "unknown"
NAMES_WIDTH = 68
"""With the fact's name before it, a line of 80 columns."""


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
    yield "Would", "start now" if plan["fits"] else "preempt, then start" if plan.get("victims") else "wait"
    yield from _names("Preempt", plan.get("victims"))
    yield from _start(plan)
    yield from network_facts(plan.get("network"))
    yield from _names("Machines", plan.get("machines"))
    if plan.get("position"):
        yield "Position", f"{plan['position']} in the queue"
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
    yield from _names("Preempt", explanation.get("victims"))
    yield from _start(explanation)


def _start(answer: Mapping[str, Any]) -> Iterator[Fact]:
    """The latest start, where the run waits; an older API gives no words for it."""
    when, words = answer.get("expected_start"), answer.get("expected_words")
    if when == UNKNOWN:
        yield "Start", words or UNKNOWN
    elif when:
        yield "Start", f"{output.clock(when)}{f', {words}' if words else ''}"


def _each(name: str, values: Iterable[object] | None) -> Iterator[Fact]:
    for i, value in enumerate(values or ()):
        yield "" if i else name, value


def _names(name: str, values: Iterable[object] | None) -> Iterator[Fact]:
    """Names, as many on a line as fit there."""
    text = ", ".join(output.clean(value) for value in values or ())
    yield from _each(name, textwrap.wrap(text, NAMES_WIDTH, break_long_words=False, break_on_hyphens=False))
