"""The run specification: the recipe's is taken as written, and everything wrong with another is said at once."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from astraeus.model.faults import FAULTS_MOST, BadSpec, parse_submission
from astraeus.model.names import canonical, split_worker_name, worker_name
from astraeus.model.spec import (
    AnyMachine,
    ConfigFile,
    DriveMount,
    GpuRequests,
    Metadata,
    Network,
    PerGpu,
    Resources,
    RunSpec,
    Submission,
    TaskTemplate,
    Topology,
)

RECIPE: dict[str, Any] = json.loads("""
{
  "metadata": {"name": "resnet-64gpu", "labels": {"project": "vision-scale"}},
  "spec": {
    "start": "Gang",
    "on_failure": "RestartJob",
    "task_template": {
      "image": "nvcr.io/nvidia/pytorch:24.08-py3",
      "command": "bash",
      "args": ["-c", "exec torchrun --nnodes=$WORLD_SIZE --node-rank=$RANK /app/train_ddp.py"],
      "env": {"STEPS": "50000"},
      "time_limit_seconds": 86400,
      "drives": [{"name": "checkpoints", "mount_path": "/ckpt", "mode": "ReadWrite"}],
      "requested_resources": {
        "gpu_requests": {"count": 64, "models": ["H100"], "healthy_only": true},
        "machines": 8,
        "per_gpu": {"cpu_cores": 12, "memory_bytes": 107374182400},
        "network": {"interconnect": "infiniband", "min_gbps": 400},
        "topology": {"keep_within": "fabric", "patience_seconds": 900},
        "machine_selection": {"mode": "Any"}
      },
      "configs": [{"mounts": ["/app/train_ddp.py"], "value": "import os\\n"}]
    }
  }
}
""")
TASK = "/spec/task_template"
RESOURCES = TASK + "/requested_resources"
PARTS: dict[str, type[BaseModel]] = {
    "": Submission,
    "/metadata": Metadata,
    "/spec": RunSpec,
    TASK: TaskTemplate,
    TASK + "/drives/0": DriveMount,
    TASK + "/configs/0": ConfigFile,
    RESOURCES: Resources,
    RESOURCES + "/gpu_requests": GpuRequests,
    RESOURCES + "/per_gpu": PerGpu,
    RESOURCES + "/network": Network,
    RESOURCES + "/topology": Topology,
    RESOURCES + "/machine_selection": AnyMachine,
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def changed(pointer: str, value: Any, of: Any = RECIPE) -> Any:
    document = copy.deepcopy(of)
    place: Any = document
    *way, last = pointer.split("/")[1:]
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    place[int(last) if isinstance(place, list) else last] = value
    return document


def faults(document: Any) -> dict[str, str]:
    with pytest.raises(BadSpec) as caught:
        parse_submission(document)
    return {fault.pointer: fault.message for fault in caught.value.faults}


def test_the_recipes_specification_round_trips() -> None:
    submission = parse_submission(RECIPE)
    assert parse_submission(submission.model_dump(mode="json")) == submission
    kept = submission.model_dump(mode="json", exclude_unset=True)
    assert kept == RECIPE


def test_defaults() -> None:
    spec = parse_submission({"metadata": {"name": "a"}, "spec": {"task_template": {"command": "true"}}}).spec
    assert (spec.start, spec.failure_rule, spec.priority, spec.preemptible, spec.restart_budget) == (
        "Gang",
        "RestartJob",
        0,
        True,
        10,
    )
    resources = spec.task_template.requested_resources
    assert (resources.network.interconnect, resources.topology.keep_within) == ("any", "any")
    assert resources.topology.patience_seconds == 0


@settings(max_examples=300, deadline=None)
@given(json_values)
def test_no_json_value_breaks_the_reader(value: Any) -> None:
    for document in (value, {"metadata": value, "spec": value}, {"metadata": {"name": "a"}, "spec": value}):
        assert faults(document)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_value_in_any_field_breaks_the_reader(data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(sorted(PARTS)))
    field = data.draw(st.sampled_from(sorted(PARTS[part].model_fields)))
    document = changed(f"{part}/{field}", data.draw(json_values))
    try:
        parse_submission(document)
    except BadSpec as bad:
        for fault in bad.faults:
            assert "None" not in fault.message
            assert "^" not in fault.message
            assert not fault.pointer.endswith(("/[key]", "/constrained-int", "/Any", "/Named"))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_misspelt_field_names_the_one_meant(data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(sorted(PARTS)))
    known = sorted(PARTS[part].model_fields)
    field = data.draw(st.sampled_from([name for name in known if len(name) > 4] or known))
    place = data.draw(st.integers(1, len(field) - 1))
    spelling = data.draw(st.sampled_from([field[:place] + field[place + 1 :], field + "s", field.title()]))
    if spelling in known:
        return
    said = faults(changed(f"{part}/{spelling}", 1))[f"{part}/{spelling}"]
    assert said.startswith("is not a known field; did you mean ")
    assert said.removesuffix("?").rsplit(" ", 1)[1] in known


def test_a_field_in_the_wrong_part_is_told_where_it_belongs() -> None:
    said = faults({**RECIPE, "priority": 5})
    assert said["/priority"] == "is not a field of this part; it belongs at /spec/priority"


def test_a_field_like_no_other_is_told_what_there_is() -> None:
    said = faults(changed(RESOURCES + "/topology/zzz", 5))
    assert said[RESOURCES + "/topology/zzz"] == "is not a known field; known here: keep_within, patience_seconds"


@pytest.mark.parametrize(
    ("pointer", "lowest", "highest"),
    [
        ("/spec/priority", -1000, 1000),
        ("/spec/restart_budget", 0, 1_000_000),
        (RESOURCES + "/gpu_requests/count", 0, 1_000_000),
        (RESOURCES + "/machines", 1, 10_000),
        (RESOURCES + "/per_gpu/cpu_cores", 0, 4096),
        (RESOURCES + "/per_gpu/memory_bytes", 0, 2**50),
        (RESOURCES + "/topology/patience_seconds", 0, 30 * 86_400),
        (TASK + "/time_limit_seconds", 1, 3650 * 86_400),
        (TASK + "/stop_grace_seconds", 0, 86_400),
    ],
)
def test_bounds(pointer: str, lowest: int, highest: int) -> None:
    for good in (lowest, highest):
        document = changed(pointer, good)
        if pointer.endswith(("/count", "/machines")):
            document["spec"]["task_template"]["requested_resources"].pop("machines")
        parse_submission(document)
    for bad in (lowest - 1, highest + 1, 10**30, str(highest), True, [highest]):
        assert pointer in faults(changed(pointer, bad))


@pytest.mark.parametrize(
    ("pointer", "value", "said"),
    [
        ("/metadata/name", "a" * 60, "is 60 characters long; use at most 52"),
        ("/metadata/name", 5, "must be a string; put it in quotes"),
        ("/metadata/labels", {str(i): "x" for i in range(1000)}, "has 1000 entries; use at most 64"),
        ("/spec/priority", 1001, "is 1001; use at most 1000"),
        (
            "/spec/restart_budget",
            "lots",
            'must be a whole number from 0 to 1000000 without quotes, or "unlimited"',
        ),
        ("/spec/on_failure", "Retry", "must be one of 'RestartJob', 'RestartWorker', 'Fail'; it is 'Retry'"),
        (
            "/spec/on_failure",
            "RestartWorker",
            "is RestartWorker, which needs start: Independent; use RestartJob or Fail with a gang",
        ),
        (TASK + "/command", "", "is empty; write something"),
        *(
            (f"{TASK}/{field}", value, "holds a NUL character; take it out")
            for field, value in (("command", "a\0b"), ("image", "a\0b"))
        ),
        (TASK + "/image", "\ud800", "holds half of a surrogate pair; send whole characters"),
        (RESOURCES + "/machine_selection", {}, 'is missing mode; add "mode": "Any" or "mode": "Named"'),
        (RESOURCES + "/machine_selection", {"mode": "All"}, "has a mode of 'All'; use 'Any' or 'Named'"),
        (
            RESOURCES + "/gpu_requests/count",
            60,
            "is 60, which does not divide by machines (8); use 56 or 64, or change machines",
        ),
        (RESOURCES + "/per_gpu/cpu_cores", float("nan"), "must be a finite number"),
        (
            TASK + "/drives/0/mount_path",
            "ckpt",
            "is 'ckpt'; use an absolute path that does not end in '/', such as /ckpt",
        ),
        (TASK + "/drives/0/mount_path", "/ckpt/../etc", "is not a plain path; write /etc"),
    ],
)
def test_what_to_do_is_said_in_plain_words(pointer: str, value: Any, said: str) -> None:
    assert faults(changed(pointer, value)) == {pointer: said}


def test_no_text_of_a_specification_holds_a_nul_character() -> None:
    """PostgreSQL cannot read a document with one, and what it says may be a secret, so it is not said again."""
    named = {"mode": "Named", "machines": [f"m-{i}" for i in range(8)]}
    labelled = {"mode": "Any", "match_labels": {"rack": "r0"}}
    for selection in (named, labelled):
        document = changed(RESOURCES + "/machine_selection", selection)
        for place, text in _texts(document, ""):
            said = faults(changed(place, f"{text}\0", document))[place]
            assert said == "holds a NUL character; take it out" or "; use " in said or "must be one of" in said


def _texts(part: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(part, str):
        yield place, part
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, inner in items:
        if key != "mode":
            yield from _texts(inner, f"{place}/{key}")


def test_a_bad_name_in_a_map_is_pointed_at_itself() -> None:
    assert faults(changed(TASK + "/env", {"1A": "x", "[key]": "y"})) == {
        TASK + "/env/1A": "its name is '1A'; use letters, digits and '_', not starting with a digit",
        TASK + "/env/[key]": "its name is '[key]'; use letters, digits and '_', not starting with a digit",
    }


def test_configs_over_one_mebibyte_are_refused_with_the_limit() -> None:
    exactly = [{"mounts": ["/a"], "value": "é" * (512 * 1024)}]
    parse_submission(changed(TASK + "/configs", exactly))
    said = faults(changed(TASK + "/configs", [*exactly, {"mounts": ["/b"], "value": "x" * 1024 * 1024}]))
    assert said == {
        TASK + "/configs": "hold 2097152 bytes in sum; the limit is 1048576 (1 MiB): put large files on a drive"
    }


def test_two_mounts_at_one_path() -> None:
    said = faults(changed(TASK + "/configs/0/mounts", ["/ckpt"]))
    assert said == {
        TASK + "/configs/0/mounts/0": f"is /ckpt, already mounted by {TASK}/drives/0/mount_path; "
        "give each mount its own path"
    }


def test_more_machines_than_are_named() -> None:
    said = faults(changed(RESOURCES + "/machine_selection", {"mode": "Named", "machines": ["m-1", "M-1", "m-2"]}))
    assert said == {
        RESOURCES + "/machine_selection/machines": "names 2 of the 8 machines the run needs; "
        "name more, or lower machines"
    }


def test_a_free_shape_needs_enough_gpus_and_no_machines() -> None:
    both = changed(RESOURCES + "/gpu_requests/min_per_machine", 8)
    assert list(faults(both)) == [RESOURCES + "/gpu_requests/min_per_machine"]
    del both["spec"]["task_template"]["requested_resources"]["machines"]
    parse_submission(both)
    both["spec"]["task_template"]["requested_resources"]["gpu_requests"]["count"] = 4
    assert list(faults(both)) == [RESOURCES + "/gpu_requests/count"]


def test_workers_that_start_one_by_one_are_counted_by_machines() -> None:
    document = changed("/spec/start", "Independent")
    del document["spec"]["on_failure"]
    assert parse_submission(document).spec.failure_rule == "RestartWorker"
    resources = document["spec"]["task_template"]["requested_resources"]
    resources["machine_selection"] = {"mode": "Named", "machines": ["m-1"]}
    parse_submission(document)
    resources |= {"machines": 1025, "gpu_requests": {"count": 0}}
    assert faults(document) == {
        RESOURCES + "/machines": (
            "is 1025; with start: Independent use at most 1024, and several runs for more workers"
        )
    }
    del resources["machines"]
    resources["gpu_requests"] = {"count": 64, "min_per_machine": 8}
    assert faults(document) == {
        RESOURCES + "/machines": "is missing; with start: Independent give the number of workers here",
        RESOURCES + "/gpu_requests/min_per_machine": (
            "cannot be used with start: Independent, where every worker's part is fixed; take it out and give machines"
        ),
    }


def test_a_secret_that_is_also_in_env() -> None:
    assert faults(changed(TASK + "/secret_env", ["STEPS"])) == {
        TASK + "/secret_env/0": "STEPS is also in env; keep one of the two"
    }


def test_all_faults_at_once_in_the_order_of_their_pointers() -> None:
    document = changed("/spec/priority", "high")
    document["metadata"] = {"name": "a.b", "label": {}}
    del document["spec"]["task_template"]["command"]
    assert list(faults(document)) == ["/metadata/label", "/metadata/name", "/spec/priority", TASK + "/command"]


@pytest.mark.parametrize("name", ["a.b", "-a", "a-", "a b", "ä", "", "a/b", "a\n"[:1] + "_"])
def test_names_that_are_no_dns_label(name: str) -> None:
    assert "letters, digits and '-'" in faults(changed("/metadata/name", name))["/metadata/name"]


def test_capitals_and_blanks_are_another_spelling_of_the_name() -> None:
    assert parse_submission(changed("/metadata/name", " ResNet-64GPU\n")).metadata.name == "resnet-64gpu"
    assert parse_submission(changed("/metadata/name", "a" * 52)).metadata.name == "a" * 52
    drive = parse_submission(changed(TASK + "/drives/0/name", "Checkpoints")).spec.task_template.drives[0]
    assert drive.name == "checkpoints"


def test_reading_does_not_change_what_was_read() -> None:
    document = changed("/metadata/name", "ResNet")
    before = copy.deepcopy(document)
    parse_submission(document)
    assert document == before


def test_garbage_gets_a_bounded_answer() -> None:
    said = faults({str(i): i for i in range(10_000)})
    assert len(said) == FAULTS_MOST + 1
    assert said[""] == "has 9802 more faults; correct these first"


def test_a_huge_map_is_refused_without_a_word_for_each_entry() -> None:
    assert faults(changed(TASK + "/env", {str(i): i for i in range(50_000)})) == {
        TASK + "/env": "has 50000 entries; use at most 4096"
    }


@pytest.mark.parametrize("document", [None, 5, "x", [], {}, [{}], {"metadata": None, "spec": []}])
def test_documents_that_are_no_specification(document: Any) -> None:
    assert all("must be an object" in said or "is missing" in said for said in faults(document).values())


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", fullmatch=True), st.integers(0, 10_000))
def test_a_workers_name_tells_its_run_and_rank(run: str, rank: int) -> None:
    assert split_worker_name(worker_name(run, rank)) == (run, rank)
    assert split_worker_name(worker_name(run, rank).upper()) == (run, rank)


@pytest.mark.parametrize("name", ["", "-", "-0", "run", "run-", "run-x", "run-²", "run--", "run-" + "9" * 5000])
def test_names_of_no_worker(name: str) -> None:
    assert split_worker_name(name) is None


@given(st.text())
def test_canonical_is_final(name: str) -> None:
    assert canonical(canonical(name)) == canonical(name)
