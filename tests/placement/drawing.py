"""Fleets and runs drawn in text, and the application of a plan to them, for scenario tests.

A fleet is lines of either a place (`fabric f`, `spine s`, `leaf l`, `rack r`, `nvlink n`, `roce n`, `no leaf`, `200G`,
`ports roce`, `rails 4`, `model A100`), which holds for the machines below it, or a machine: its name, one character per
GPU (`.` free, a letter: a run holds it, `x` broken, `?` doubtful), and words (`down`, `cordoned`, `200G`, `dark:3`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from astraeus.model.machine import FABRIC, LEAF, NVLINK, RACK, ROCE, SPINE, Nic
from astraeus.model.spec import Resources
from astraeus.placement.planner import plan
from astraeus.placement.types import Ask, Grant, Holding, Machine, Plan, Snapshot

GIB = 1024**3
PLACES = {"fabric": FABRIC, "spine": SPINE, "leaf": LEAF, "rack": RACK, "nvlink": NVLINK, "roce": ROCE}
CLAIM_OF_LETTER = 1000
OWNER = "acme/vision"


@dataclass
class Pen:
    labels: dict[str, str] = field(default_factory=dict)
    gbps: float = 400
    link: str = "infiniband"
    rails: int = 8
    model: str = "NVIDIA H100 80GB HBM3"


def draw(text: str, runs: Mapping[str, Mapping[str, Any]] | None = None) -> Snapshot:
    """The snapshot of a drawing; `runs` says more of the runs behind the letters (priority, ends_at, …)."""
    pen = Pen()
    machines: list[Machine] = []
    holdings: list[Holding] = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words or _moved(pen, words):
            continue
        machines.append(_machine(pen, words))
        holdings += _holdings(machines[-1].name, words[1] if len(words) > 1 else "", runs or {})
    return Snapshot("lab-a", tuple(machines), tuple(holdings))


def _moved(pen: Pen, words: list[str]) -> bool:
    if words[0] in PLACES:
        pen.labels = {**pen.labels, PLACES[words[0]]: words[1]}
    elif words[0] == "no":
        pen.labels = {key: value for key, value in pen.labels.items() if key != PLACES[words[1]]}
    elif words[0] == "ports":
        pen.link = words[1]
    elif words[0] == "rails":
        pen.rails = int(words[1])
    elif words[0] == "model":
        pen.model = " ".join(words[1:])
    elif words[0].endswith("G") and words[0][:-1].isdigit():
        pen.gbps = float(words[0][:-1])
    else:
        return False
    return True


def _machine(pen: Pen, words: list[str]) -> Machine:
    name, gpus, *rest = [*words, ""] if len(words) == 1 else words
    gbps, refusal, dark, slow = pen.gbps, None, set(), {}
    for word in rest:
        if word.endswith("G"):
            gbps = float(word[:-1])
        elif word.startswith("dark:"):
            dark = {int(rail) for rail in word[5:].split(",")}
        elif word.startswith("slow:"):
            rail, rate = word[5:].split("=")
            slow[int(rail)] = float(rate)
        elif word:
            refusal = word
    return Machine(
        name=name,
        gpus=len(gpus),
        gpu_model=pen.model if gpus else "",
        cpu_cores=192,
        memory_bytes=2048 * GIB,
        labels=dict(pen.labels),
        ports=tuple(
            Nic(device=f"mlx5_{i}", rail=i, gbps=slow.get(i, gbps), link=pen.link, up=i not in dark)  # type: ignore[arg-type]
            for i in range(pen.rails)
        ),
        broken=_mask(gpus, "x"),
        doubtful=_mask(gpus, "?"),
        refusal=refusal,
    )


def _mask(gpus: str, char: str) -> int:
    return sum(1 << i for i, there in enumerate(gpus) if there == char)


def _holdings(machine: str, gpus: str, runs: Mapping[str, Mapping[str, Any]]) -> list[Holding]:
    return [
        Holding(
            claim=CLAIM_OF_LETTER + ord(letter),
            run_uid=f"uid-{letter}",
            run_name=letter,
            attempt=1,
            machine=machine,
            gpu_mask=_mask(gpus, letter),
            cpu_cores=0,
            memory_bytes=0,
            **{"workspace": OWNER, **runs.get(letter, {})},
        )
        for letter in sorted(set(gpus) - set(".x?"))
    ]


def need(**values: Any) -> Resources:
    """Resources in short; the keys are those used below."""
    selection: dict[str, Any] = {"mode": "Any", "match_labels": values.get("labels", {})}
    if "named" in values:
        selection = {"mode": "Named", "machines": values["named"]}
    return Resources.model_validate(
        {
            "gpu_requests": {
                "count": values.get("gpus", 0),
                "models": values.get("models", []),
                "healthy_only": values.get("healthy", False),
                "min_per_machine": values.get("least"),
            },
            "machines": values.get("machines"),
            "per_gpu": {"cpu_cores": float(values.get("cpu", 0)), "memory_bytes": values.get("memory", 0)},
            "network": {"interconnect": values.get("link", "any"), "min_gbps": float(values.get("gbps", 0))},
            "topology": {"keep_within": values.get("within", "any"), "patience_seconds": values.get("patience", 0)},
            "machine_selection": selection,
        }
    )


def ask(name: str, place: int, **values: Any) -> Ask:
    """A claim in short: what `need` takes, and workspace, priority, at, avoid, limit."""
    return Ask(
        claim=place,
        run_uid=f"uid-{name}",
        run_name=name,
        workspace=values.get("workspace", OWNER),
        attempt=1,
        resources=need(**values),
        priority=values.get("priority", 0),
        submitted_at=values.get("at", float(place)),
        patience_until=float(values.get("patience", 0)),
        avoid=frozenset(values.get("avoid", ())),
        time_limit_seconds=values.get("limit"),
    )


def applied(snapshot: Snapshot, decided: Plan, *, victims_gone: bool = False) -> Snapshot:
    """The snapshot after a plan was committed: grants are held, victims stop (or are gone), the rest still waits."""
    asks = {found.claim: found for found in snapshot.asks}
    evicted = {eviction.claim for eviction in decided.evictions}
    held = [replace(h, stopping=h.stopping or h.claim in evicted) for h in snapshot.holdings]
    if victims_gone:
        held = [h for h in held if not h.stopping]
    granted = {grant.claim for grant in decided.grants}
    return replace(
        snapshot,
        holdings=(*held, *(h for grant in decided.grants for h in held_by(grant, asks[grant.claim]))),
        asks=tuple(found for found in snapshot.asks if found.claim not in granted),
        reserved=decided.reserved,
    )


def held_by(grant: Grant, granted: Ask) -> list[Holding]:
    """What a granted claim holds."""
    return [
        Holding(
            claim=grant.claim,
            run_uid=grant.run_uid,
            run_name=granted.run_name,
            workspace=granted.workspace,
            attempt=grant.attempt,
            machine=member.machine,
            gpu_mask=member.gpu_mask,
            cpu_cores=member.cpu_cores,
            memory_bytes=member.memory_bytes,
            priority=granted.priority,
        )
        for member in grant.members
    ]


def picture(snapshot: Snapshot) -> dict[str, str]:
    """Every machine's GPUs as one character each: the first letter of the run that holds it."""
    drawn = {}
    for machine in snapshot.machines:
        chars = [
            "x" if machine.broken >> i & 1 else "?" if machine.doubtful >> i & 1 else "." for i in range(machine.gpus)
        ]
        for holding in snapshot.holdings:
            if holding.machine == machine.name:
                for i in range(machine.gpus):
                    if holding.gpu_mask >> i & 1:
                        chars[i] = holding.run_name[0]
        drawn[machine.name] = "".join(chars)
    return drawn


def settled(snapshot: Snapshot, decided: Plan, now: float, rounds: int = 5) -> Snapshot:
    """The snapshot after a plan and five more passes, which must change nothing."""
    snapshot = applied(snapshot, decided)
    waiting = [(wait.claim, wait.position) for wait in decided.waits]
    for _ in range(rounds):
        again = plan(snapshot, now)
        assert (again.grants, again.evictions) == ((), ()), "a later pass with nothing new decided something"
        assert [(wait.claim, wait.position) for wait in again.waits] == waiting
        assert set(again.reserved) == set(decided.reserved)
        snapshot = applied(snapshot, again)
    return snapshot


def names(grants: Sequence[Grant]) -> dict[int, list[str]]:
    """The machines of every grant in rank order."""
    return {grant.claim: [member.machine for member in grant.members] for grant in grants}
