"""Templates: saved, and run under a new name with values replaced."""

from typing import Any

import pytest

from api.services.templates import TemplateRun, filled
from astraeus.model.faults import BadSpec


async def test_a_template_is_saved_run_and_forgotten(both: Any, spec: Any) -> None:
    editor = both.client()
    saved = await editor.put("/templates/ResNet-64gpu", json=spec(metadata={"labels": {"project": "vision"}}))
    assert (saved.status_code, saved.json()["name"], saved.json()["updated_by"]) == (200, "resnet-64gpu", "editor")
    assert [one["name"] for one in (await editor.get("/templates")).json()["items"]] == ["resnet-64gpu"]
    order = {"name": "Run1", "labels": {"who": "me"}, "set": {"spec.priority": 7, "/spec/restart_budget": 0}}
    answer = await editor.post("/templates/resnet-64gpu:run", json=order, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 201, answer.text
    run = answer.json()
    assert run["metadata"]["name"] == "run1"
    assert run["metadata"]["labels"] == {"project": "vision", "who": "me"}
    assert (run["spec"]["priority"], run["restarts"]["budget"]) == (7, 0)
    again = await editor.post("/templates/resnet-64gpu:run", json=order, headers={"Idempotency-Key": "k"})
    assert again.json()["metadata"]["uid"] == run["metadata"]["uid"]
    assert (await editor.delete("/templates/RESNET-64gpu")).status_code == 204
    for answer in (
        await editor.get("/templates/resnet-64gpu"),
        await editor.delete("/templates/resnet-64gpu"),
        await editor.post("/templates/resnet-64gpu:run", json={"name": "a"}),
    ):
        assert answer.status_code == 404


async def test_what_is_wrong_with_a_template(world: Any, spec: Any) -> None:
    editor = world.client()
    assert (await editor.put("/templates/a.b", json=spec())).status_code == 422
    bad = await editor.put("/templates/t", json={"spec": {"task_template": {}}})
    assert [fault["pointer"] for fault in bad.json()["faults"]] == ["/spec/task_template/command"]
    nameless = await editor.put("/templates/t", json={"spec": spec()["spec"]})
    assert nameless.status_code == 200
    for order, pointer in (
        ({}, "/name"),
        ({"name": "a b"}, "/metadata/name"),
        ({"name": "a", "set": {"spec.prioritty": 1}}, "/spec/prioritty"),
        ({"name": "a", "set": {"spec.task_template.command.x": 1}}, "/set/spec.task_template.command.x"),
        ({"name": "a", "sett": {}}, "/sett"),
    ):
        answer = await editor.post("/templates/t:run", json=order)
        assert answer.status_code == 422
        assert [fault["pointer"] for fault in answer.json()["faults"]] == [pointer]


def test_paths_lead_into_lists_and_null_takes_away() -> None:
    body = {"metadata": {"name": "t"}, "spec": {"args": ["a", "b"], "priority": 3}}
    order = TemplateRun(name="n", set={"spec.args.1": "c", "spec.priority": None, "spec.env.A": "x"})
    assert filled(body, order) == {
        "metadata": {"name": "n", "labels": {}},
        "spec": {"args": ["a", "c"], "env": {"A": "x"}},
    }
    assert body["spec"]["args"] == ["a", "b"]


@pytest.mark.parametrize("path", ["spec.args.2", "spec.args.x", "spec.args.-1", "spec.priority.deep"])
def test_paths_that_lead_nowhere(path: str) -> None:
    with pytest.raises(BadSpec) as caught:
        filled({"spec": {"args": ["a"], "priority": 1}}, TemplateRun(name="n", set={path: 1}))
    assert [fault.pointer for fault in caught.value.faults] == [f"/set/{path}"]
