"""Fleet files: what they say, and every fault of one at once."""

from pathlib import Path

import pytest

from astraeus.agent.fleet import default_fleet, load_fleet, parse_fleet, parse_memory
from astraeus.model.errors import Invalid
from astraeus.model.machine import FABRIC, LEAF, RACK, SPINE

EXAMPLES = Path(__file__).parents[2] / "deploy" / "fleets"


def test_the_default_fleet_is_the_recipes() -> None:
    fleet = load_fleet(default_fleet())
    assert fleet.cluster == "lab-a"
    assert [machine.name for machine in fleet.machines] == [f"m-{i}" for i in range(16)]
    for i, machine in enumerate(fleet.machines):
        assert (machine.gpus, machine.gpu_model) == (8, "NVIDIA H100 80GB HBM3")
        assert machine.labels == {
            FABRIC: "sm-0x0002c90300a1b2c3",
            SPINE: "s0",
            LEAF: f"leaf-r0-7-g{i // 8}",
            RACK: f"r{i // 8}",
        }
        assert machine.cpu_cores >= 12 * 8
        assert machine.memory_bytes >= 107374182400 * 8
        assert [nic.hca for nic in machine.nics] == [f"mlx5_{rail}:1" for rail in range(8)]
        assert {(nic.gbps, nic.link, nic.up) for nic in machine.nics} == {(400.0, "infiniband", True)}
        assert machine.address == "127.0.0.1"
        assert machine.virtual


@pytest.mark.parametrize("path", [*sorted(EXAMPLES.glob("*.yaml")), default_fleet()], ids=lambda path: path.stem)
def test_every_example_is_sound_and_has_a_drawing(path: Path) -> None:
    assert load_fleet(path).machines
    drawing = path.read_text().split("cluster:")[0]
    assert len(drawing.splitlines()) > 4
    assert all(line.startswith("#") for line in drawing.splitlines())


def test_ten_thousand_machines_are_one_line() -> None:
    text = (
        "cluster: big\nmachines:\n  m-{0..9999}: {gpus: 8, gpu_model: H100, labels: {leaf: 'l-{n/8}', rack: 'r{n%4}'}}"
    )
    machines = parse_fleet(text).machines
    assert len(machines) == 10_000
    assert machines[-1].labels == {LEAF: "l-1249", RACK: "r3"}


def test_ports_that_are_down_or_slow() -> None:
    rails = "{count: 2, gbps: 400, down: [mlx5_0], slow: {mlx5_1: 200}}"
    (machine,) = parse_fleet(f"cluster: a\nmachines: {{m: {{rails: {rails}}}}}").machines
    assert [(nic.up, nic.gbps) for nic in machine.nics] == [(False, 400), (True, 200)]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("- a", ["must be a mapping"]),
        ("cluster: a", ["machines: Field required"]),
        ("cluster: a\ncluster: b\nmachines: {m: {}}", ["'cluster' is given twice"]),
        ("cluster: a\nmachines: {}", ["at least 1 item"]),
        ("cluster: A_b\nmachines: {m: {}}", ["cluster: 'A_b' is not a DNS label"]),
        ("cluster: a\nmachines: {m: {gpu: 8}, n: {cpus: 3}}", ["m.gpu: unknown field; did you mean gpus?", "n.cpus"]),
        ("cluster: a\nmachines: {m: {gpus: 8}}", ["gpu_model is missing"]),
        ("cluster: a\nmachines: {m: {gpus: '8'}}", ["valid integer"]),
        ("cluster: a\nmachines: {'m-{3..1}': {}}", ["from the lower to the higher"]),
        ("cluster: a\nmachines: {'m-{0..2}': {}, m-1: {}}", ["machines.m-1: there is a m-1 already"]),
        ("cluster: a\nmachines: {m: {template: x}}", ["there is no template x"]),
        ("cluster: a\ntemplates: {x: {template: y}, y: {template: x}}\nmachines: {m: {template: x}}", ["circles"]),
        ("cluster: a\nmachines: {m: {gpus: 1, gpu_model: H, broken_gpus: [1]}}", ["there is no GPU 1 among 1"]),
        ("cluster: a\nmachines: {m: {memory: 3 apples}}", ["memory '3 apples' is not a number"]),
        ("cluster: a\nmachines: {m: {labels: {rack: 'r{n}'}}}", ["no meaning for a single machine"]),
        ("cluster: a\nmachines: {m: {rails: {count: 1, gbps: 1, down: [eth0]}}}", ["there is no port eth0"]),
        ("cluster: [", ["is not YAML"]),
    ],
)
def test_faults_are_named(text: str, faults: list[str]) -> None:
    with pytest.raises(Invalid) as caught:
        parse_fleet(text)
    for fault in faults:
        assert fault in caught.value.message


def test_memory() -> None:
    assert (parse_memory("2TiB"), parse_memory(5), parse_memory("1.5 GiB")) == (2**41, 5, 3 * 2**29)
