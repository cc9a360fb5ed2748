"""What a page is made of: what it listens to, what it shows, and which actions it takes from whom."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.auth import Role, Scope
from astraeus.model.faults import BadSpec, faults_of

Values = dict[str, Any]
Params = dict[str, Any]
"""What a page is asked to show: the names in its address, and what its user looks for."""

Load = Callable[[Scope, Params], Awaitable[Values]]
Do = Callable[[Scope, Params, Values], Awaitable[Any]]
Topics = Callable[[Scope, Params], tuple[str, ...]]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Action:
    """Something a user may ask of a page; the role is checked each time it is asked."""

    role: Role
    do: Do


@dataclass(frozen=True)
class View:
    """One page. `topics` end in `/` where every key that begins so concerns it."""

    name: str
    title: str
    load: Load
    topics: Topics
    actions: Mapping[str, Action]


def model(of: type[Model], values: Any) -> Model:
    """What a page sent, as REST would take it. Raises `BadSpec` with every fault."""
    try:
        return of.model_validate(values)
    except ValidationError as error:
        raise BadSpec(faults_of(error, of)) from error


def seconds(at: datetime | None) -> float | None:
    """A time as pages take it: seconds since the epoch."""
    return None if at is None else at.timestamp()


def of_workspace(*kinds: str) -> Topics:
    """Topics of everything of these kinds in the workspace."""
    return lambda scope, _: tuple(f"{kind}:{scope.workspace.id}" for kind in kinds)
