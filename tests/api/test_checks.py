"""Names that a specification uses and its workspace does not have are faults at submit, not failures at start."""

from typing import Any


async def test_unknown_drives_and_secrets_are_named_with_the_known_ones(world: Any, spec: Any) -> None:
    editor = world.client()
    await editor.put("/drives/checkpoints", json={"kind": "shared"})
    await editor.put("/secrets/WANDB_KEY", json={"value": "s"})
    body = spec()
    task = body["spec"]["task_template"]
    task["drives"] = [
        {"name": "checkpoints", "mount_path": "/ckpt"},
        {"name": "checkpoint", "mount_path": "/data"},
    ]
    task["secret_env"] = ["WANDB_KEY", "HF_TOKEN"]
    for path in ("/runs", "/runs:plan"):
        answer = await editor.post(path, json=body)
        assert answer.status_code == 422, answer.text
        assert {fault["pointer"]: fault["message"] for fault in answer.json()["faults"]} == {
            "/spec/task_template/drives/1/name": (
                "is checkpoint, which is no drive of this workspace; there are checkpoints"
            ),
            "/spec/task_template/secret_env/1": (
                "is HF_TOKEN, which is no secret of this workspace; there are WANDB_KEY"
            ),
        }
