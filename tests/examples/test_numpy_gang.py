"""The NumPy trainer keeps the contract of a run that survives: real processes, real sockets."""

import json
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from examples.gang import Gang, gang


def trained(directory: Path, world: int, gpus: int, **env: object) -> Gang:
    with gang(directory, world, ASTRAEUS_GPU_COUNT=gpus, **env) as members:
        members.start()
        codes, output = members.end()
        assert set(codes.values()) == {0}, output
        assert f"finished {env['STEPS']} steps on {world * gpus} GPUs" in output[0]
    return members


def parameters(members: Gang) -> np.ndarray:
    with np.load(members.checkpoint) as saved:
        values: np.ndarray = saved["parameters"]
        return values


@pytest.mark.parametrize("world", [2, 3, 6])
def test_any_number_of_workers_trains_the_same_parameters_as_one(tmp_path: Path, world: int) -> None:
    alone = trained(tmp_path / "one", 1, 6, STEPS=20)
    together = trained(tmp_path / "many", world, 6 // world, STEPS=20)
    np.testing.assert_allclose(parameters(together), parameters(alone), rtol=0, atol=1e-12)


def test_the_loss_falls(tmp_path: Path) -> None:
    with gang(tmp_path, 2, STEPS=60) as members:
        members.start()
        _, output = members.end()
    losses = [float(line.split()[3]) for line in output[0].splitlines() if line.startswith("step ")]
    assert len(losses) == 60
    assert losses[-1] < losses[0] / 2


def test_sigterm_saves_at_one_step_of_all_and_the_next_attempt_resumes_there(tmp_path: Path) -> None:
    straight = trained(tmp_path / "straight", 2, 2, STEPS=40)
    with gang(tmp_path / "broken", 2, STEPS=40, STEP_SECONDS=0.05) as first:
        first.start()
        first.wait_for("step 3/40")
        first.signal(signal.SIGTERM, 1)
        codes, output = first.end()
        assert codes == {0: 0, 1: 0}, "one member asked to stop stops all, at the same step"
        assert "checkpoint saved" in output[0]
        stopped = int(output[0].split("stopped after step ")[1].split(",")[0])
        assert stopped < 39
    with gang(tmp_path / "broken", 2, STEPS=40, ASTRAEUS_ATTEMPT=2) as second:
        second.start()
        assert second.wait_for("resuming") == f"resuming at step {stopped + 1}"
        assert second.wait_for("step").startswith(f"step {stopped + 1}/40 loss ")
        assert second.wait_for("finished").endswith("on 4 GPUs")
        assert set(second.end()[0].values()) == {0}
    np.testing.assert_array_equal(parameters(second), parameters(straight))


def test_a_lost_member_ends_all_others_with_an_error_and_the_last_periodic_checkpoint_counts(tmp_path: Path) -> None:
    with gang(tmp_path, 3, STEPS=100_000, STEP_SECONDS=0.01, SAVE_EVERY=5) as first:
        first.start()
        first.wait_for("step 12/")
        first.signal(signal.SIGKILL, 1)
        codes, output = first.end()
        assert codes == {0: 1, 1: -signal.SIGKILL, 2: 1}
        assert "rank 2 of attempt 1 lost a peer" in output[2]
    assert not list(first.checkpoint.parent.glob("*.tmp"))
    with gang(tmp_path, 3, STEPS=100_000, ASTRAEUS_ATTEMPT=2) as second:
        second.start()
        step = int(second.wait_for("resuming").removeprefix("resuming at step "))
        assert step >= 10
        assert step % 5 == 0


def test_the_newest_checkpoint_counts_whichever_member_can_read_it(tmp_path: Path) -> None:
    """A drive on each machine: rank 0 saved on one that is now rank 1's."""
    saved = trained(tmp_path / "before", 2, 2, STEPS=10)
    with gang(tmp_path, 2, STEPS=20) as members:
        members.start(0, CKPT_DIR=tmp_path / "empty")
        members.start(1, CKPT_DIR=saved.checkpoint.parent)
        assert members.wait_for("resuming") == "resuming at step 10"
        assert set(members.end()[0].values()) == {0}
    straight = trained(tmp_path / "straight", 2, 2, STEPS=20)
    with np.load(tmp_path / "empty/latest.npz") as after:
        np.testing.assert_array_equal(after["parameters"], parameters(straight))


def test_a_finished_run_started_again_has_nothing_left_to_do(tmp_path: Path) -> None:
    trained(tmp_path, 2, 1, STEPS=5)
    again = trained(tmp_path, 2, 1, STEPS=5)
    with np.load(again.checkpoint) as saved:
        assert int(saved["step"]) == 5


def test_a_stray_member_of_another_attempt_is_refused_and_the_gang_goes_on(tmp_path: Path) -> None:
    with gang(tmp_path, 2, STEPS=5, ASTRAEUS_ATTEMPT=2) as members:
        members.start(0)
        with gang(tmp_path, 2, ASTRAEUS_ATTEMPT=1, MASTER_PORT=members.env["MASTER_PORT"]) as strays:
            strays.start(1)
            codes, output = strays.end()
            assert codes == {1: 1}
            assert "this is attempt 2, not 1" in output[1]
        members.start(1)
        codes, output = members.end()
        assert codes == {0: 0, 1: 0}, output


@pytest.mark.parametrize(
    "words", [b"", b"GET / HTTP/1.0\r\n\r\n", b"\xff\xfe\n", b"[1]\n", json.dumps({"rank": 1}).encode() + b"\n"]
)
def test_callers_that_are_no_members_do_not_disturb_the_rendezvous(tmp_path: Path, words: bytes) -> None:
    with gang(tmp_path, 2, STEPS=3) as members:
        members.start(0)
        port = int(members.env["MASTER_PORT"])
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as caller:
                    caller.sendall(words)
                break
            except ConnectionRefusedError:
                assert members.members[0].poll() is None
        members.start(1)
        codes, output = members.end()
        assert codes == {0: 0, 1: 0}, output


def test_sigterm_before_the_gang_is_complete_ends_at_once(tmp_path: Path) -> None:
    with gang(tmp_path, 2) as members:
        members.start(0)
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(members.env["MASTER_PORT"]))).close()
                break
            except ConnectionRefusedError:
                assert members.members[0].poll() is None
        members.signal(signal.SIGTERM, 0)
        assert members.end()[0] == {0: 128 + signal.SIGTERM}


def test_a_member_that_never_comes_is_named(tmp_path: Path) -> None:
    with gang(tmp_path, 3, PEER_SECONDS=1) as members:
        members.start(0)
        codes, output = members.end()
    assert codes == {0: 1}
    assert "ranks [1, 2] did not come within 1 s" in output[0]
