"""The demo fails loudly: what it reads out of a log is refused when a step is missing, or there twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deploy.demo import __main__ as demo
from deploy.demo.stack import Stack
from deploy.demo.surviving import check_steps, only
from deploy.demo.telling import Unexpected
from deploy.demo.watch import steps_of


def run(steps: int, log_every: int) -> dict[str, Any]:
    return {"spec": {"task_template": {"env": {"STEPS": str(steps), "LOG_EVERY": str(log_every)}}}}


def test_steps_are_read_from_the_recipes_lines_only() -> None:
    log = ["resuming at step 7", "step 7/50 loss 0.150 on 64 GPUs", "step 8/50 loss 0.150 on 8 GPUs", "step 9"]
    assert steps_of(log) == [7]


@pytest.mark.parametrize("start", [0, 7, 10, 49])
def test_a_whole_log_tells_of_the_first_every_tenth_and_the_last_step(start: int) -> None:
    every = [step for step in range(start, 50) if step % 10 == 0 or step in (start, 49)]
    assert check_steps(every, run(50, 10)) == 50


@pytest.mark.parametrize("steps", [[7, 10, 30, 40, 49], [7, 10, 20, 20, 30, 40, 49], [7, 10, 20, 30, 40]])
def test_a_step_that_is_missing_or_there_twice_is_not_as_it_should_be(steps: list[int]) -> None:
    with pytest.raises(Unexpected):
        check_steps(steps, run(50, 10))


@pytest.mark.parametrize("lines", [[], ["resuming at step 3", "resuming at step 3"]])
def test_a_line_must_be_there_once(lines: list[str]) -> None:
    assert only(["resuming at step 3", "step 3/50 loss 0.1 on 64 GPUs"], r"resuming at step (\d+)") == 3
    with pytest.raises(Unexpected):
        only(lines, r"resuming at step (\d+)")


def test_what_is_not_as_it_should_be_ends_it_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def broken(keep: bool) -> Iterator[Stack]:
        raise Unexpected("the run ended: Failed, out of patience")
        yield

    monkeypatch.setattr(demo, "stack_of", broken)
    monkeypatch.setattr("sys.argv", ["demo"])
    assert demo.main() == 1
    assert capsys.readouterr().out == "# NOT as it should be: the run ended: Failed, out of patience\n"
