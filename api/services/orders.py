"""The bodies of orders to runs and machines."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Why = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")]


class OrderInput(BaseModel):
    """An order to a run; `why` is shown in its reason and events."""

    model_config = ConfigDict(extra="forbid", strict=True)

    why: Why | None = None


class MachineOrderInput(BaseModel):
    """An order to a machine; `reason` is shown to whoever waits for it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Why | None = None
