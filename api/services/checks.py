"""What a specification says that only its workspace can judge: drives and secrets by name."""

from collections.abc import Iterator, Sequence

from astraeus.ledger import library
from astraeus.ledger.core import Tx
from astraeus.model.faults import BadSpec, Fault
from astraeus.model.spec import RunSpec

TASK = "/spec/task_template"


async def check(tx: Tx, workspace_id: str, spec: RunSpec) -> None:
    """Raises `BadSpec` with every name that the workspace does not have."""
    task = spec.task_template
    faults: list[Fault] = []
    if task.drives:
        drives = [drive.name for drive in await library.list_drives(tx, workspace_id)]
        faults += _unknown("drive", [(f"{TASK}/drives/{i}/name", d.name) for i, d in enumerate(task.drives)], drives)
    if task.secret_env:
        secrets = await library.list_secrets(tx, workspace_id)
        faults += _unknown("secret", [(f"{TASK}/secret_env/{i}", n) for i, n in enumerate(task.secret_env)], secrets)
    if faults:
        raise BadSpec(faults)


def _unknown(what: str, wanted: Sequence[tuple[str, str]], known: Sequence[str]) -> Iterator[Fault]:
    for pointer, name in wanted:
        if name not in known:
            there = f"there are {', '.join(known[:20])}" if known else f"there is no {what} yet"
            yield Fault(pointer, f"is {name}, which is no {what} of this workspace; {there}")
