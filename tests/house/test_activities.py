"""Every stub that workflows call has its activity, with the same types, and none is registered for nothing."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints
from unittest.mock import Mock

from temporalio import activity

from activities.delivery import Courier
from astraeus.ledger.core import Ledger
from worker.main import activities_of
from workflows import contracts


def definition(function: Callable[..., Any]) -> str | None:
    # The name is kept where the SDK's own Worker finds it.
    found = activity._Definition.from_callable(function)
    return found.name if found else None


def types_of(function: Callable[..., Any]) -> tuple[list[Any], Any]:
    hints = get_type_hints(function)
    answer = hints.pop("return")
    return list(hints.values()), answer


def stubs() -> dict[str, Callable[..., Any]]:
    functions = [value for _, value in inspect.getmembers(contracts, inspect.isfunction)]
    return {name: function for function in functions if (name := definition(function))}


def registered() -> dict[str, Callable[..., Any]]:
    functions: list[Any] = activities_of(Mock(spec=Ledger), Mock(spec=Courier))
    return {name: function for function in functions if (name := definition(function))}


def test_stubs_and_activities_are_the_same_set() -> None:
    assert stubs()
    assert registered().keys() == stubs().keys()


def test_their_types_are_the_same() -> None:
    effects = registered()
    for name, stub in stubs().items():
        assert types_of(effects[name]) == types_of(stub), name
