"""A small fleet, its agent and an API for each test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.double import Agent, Api, scene

FLEET = """
cluster: lab-a
machines:
  m-{0..2}: {gpus: 2, gpu_model: H100, stop_grace_seconds: 5}
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[tuple[Api, Agent]]:
    before = sorted(os.listdir("/"))
    with scene(tmp_path, FLEET) as both:
        both[1].start()
        yield both
    assert sorted(os.listdir("/")) == before


@pytest.fixture
def api(stage: tuple[Api, Agent]) -> Api:
    return stage[0]


@pytest.fixture
def agent(stage: tuple[Api, Agent]) -> Agent:
    return stage[1]
