"""Traces, read and made."""

from pathlib import Path

import pytest

from astraeus.model.errors import Invalid
from astraeus.simulator.trace import Job, generate, read_trace, scaled, work


def written(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text)
    return path


def test_rows_come_in_the_order_of_their_submission(tmp_path: Path) -> None:
    path = written(tmp_path, "gpus,submit_s,duration_s,extra\n8,20,60,x\n16,5.5,30,y\n")
    assert read_trace(path) == [Job(5.5, 16, 30.0), Job(20.0, 8, 60.0)]


def test_priority_and_limit_may_be_there_and_empty(tmp_path: Path) -> None:
    path = written(tmp_path, "submit,gpus,duration,priority,limit\n0,8,60,5,90\n1,8,60,,\n")
    assert read_trace(path) == [Job(0, 8, 60, 5, 90), Job(1, 8, 60)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "submit_s, gpus, duration_s"),
        ("", "submit_s, gpus, duration_s"),
        ("submit_s,gpus,duration_s\n0,0,1\n", "line 2"),
        ("submit_s,gpus,duration_s\n0,8,1\n0,many,1\n", "line 3"),
        ("submit_s,gpus,duration_s\n0,8\n", "line 2"),
        ("submit_s,gpus,duration_s\n" + "x,1,1\n" * 9, "and 4 more"),
        ("submit_s,gpus,duration_s\n0,8,inf\n", "line 2"),
        ("submit_s,gpus,duration_s,limit_s\n0,8,1,inf\n", "line 2"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        read_trace(written(tmp_path, text))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"none\.csv"):
        read_trace(tmp_path / "none.csv")


def test_the_same_seed_makes_the_same_jobs() -> None:
    jobs = generate(200, 7, 64, urgent=0.2)
    assert jobs == generate(200, 7, 64, urgent=0.2) != generate(200, 8, 64)
    assert max(job.gpus for job in jobs) <= 64
    assert {job.priority for job in jobs} == {0, 10}
    assert all(job.limit is None or job.limit >= job.duration for job in jobs)


def test_scaling_gives_the_load_asked_for() -> None:
    jobs = scaled(generate(100, 1, 64), 128, 0.9)
    assert work(jobs) / (jobs[-1].submit - jobs[0].submit) / 128 == pytest.approx(0.9)
    assert scaled([], 128, 0.9) == []
    assert scaled([Job(5, 8, 1)], 128, 0.9)[0].submit == 0
