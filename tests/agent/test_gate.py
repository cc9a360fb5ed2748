"""Workers start together, once, with the right environment, and end as they should."""

from agent.double import Agent, Api, launch, worker

KEY = "run1/1/0"


def test_a_worker_waits_at_its_gate_and_runs_when_told(api: Api, agent: Agent) -> None:
    api.launches["run1", 1] = launch(KEY, "echo rank $RANK of $WORLD_SIZE; exit 3")
    api.want(worker(KEY, WORLD_SIZE="1"))
    api.until_state("arrived", KEY)
    assert (agent.place("m-0", KEY) / "log").read_bytes() == b""
    api.order("run", KEY)
    over = api.until_over(KEY)
    assert (over.state, over.exit_code, over.signal) == ("exited", 3, None)
    assert over.gate_opened_at is not None
    assert (agent.place("m-0", KEY) / "log").read_bytes() == b"rank 0 of 1\n"


def test_states_only_move_forward_and_the_live_list_follows(api: Api, agent: Agent) -> None:
    api.launches["run1", 1] = launch(KEY, "exec sleep 1000")
    api.want(worker(KEY))
    api.until_state("arrived", KEY)
    api.order("run", KEY)
    api.until_state("running", KEY)
    api.order("stop", KEY)
    over = api.until_over(KEY)
    assert (over.state, over.signal) == ("exited", 15)
    order = ["preparing", "arrived", "running", "exited"]
    seen = [order.index(report.state) for report in api.reports[KEY]]
    assert seen == sorted(seen)
    api.until_syncs()
    live = [machine.live for _, sync in api.syncs for machine in sync.machines if machine.name == "m-0"]
    assert [KEY] in live
    assert live[-1] == []


def test_a_gang_of_eight_opens_at_once(api: Api, agent: Agent) -> None:
    keys = [f"gang/1/{rank}" for rank in range(8)]
    api.launches["gang", 1] = launch(keys[0], ["true"])
    api.want(*(worker(key, f"m-{rank % 3}") for rank, key in enumerate(keys)))
    api.until_state("arrived", *keys)
    api.order("run", *keys)
    over = [api.until_over(key) for key in keys]
    assert [report.exit_code for report in over] == [0] * 8
    assert api.launches_asked == [("gang", 1)]


def test_the_users_variables_win_and_nothing_secret_is_inherited(api: Api, agent: Agent) -> None:
    api.launches["run1", 1] = launch(KEY, "env", env={"MASTER_PORT": "29600", "API_KEY": "only here"})
    api.want(worker(KEY, desired="hold", MASTER_PORT="20000", MASTER_ADDR="127.0.0.1"))
    api.until_state("arrived", KEY)
    api.order("run", KEY)
    api.until_over(KEY)
    place = agent.place("m-0", KEY)
    said = (place / "log").read_text().splitlines()
    assert "MASTER_PORT=29600" in said
    assert "MASTER_ADDR=127.0.0.1" in said
    assert f"ASTRAEUS_WORKER_KEY={KEY}@{agent.directory}/machines/m-0" in said
    assert not [line for line in said if line.startswith("PYTEST_")]
    kept = [path for path in place.rglob("*") if path.is_file() and path.name != "log"]
    assert not [path for path in kept if b"only here" in path.read_bytes()]
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept if path.name in ("spec.json", "log"))


def test_a_command_that_does_not_exist(api: Api, agent: Agent) -> None:
    api.launches["run1", 1] = launch(KEY, ["no-such-thing", "--help"])
    api.want(worker(KEY))
    over = api.until_over(KEY)
    assert (over.state, over.error) == ("failed", "no such command: no-such-thing")


def test_a_command_that_is_no_program_fails_when_the_gate_opens(api: Api, agent: Agent) -> None:
    text = agent.directory.parent / "text"
    text.write_bytes(b"\x7fELF but not really")
    text.chmod(0o755)
    api.launches["run1", 1] = launch(KEY, [str(text)])
    api.want(worker(KEY))
    api.until_state("arrived", KEY)
    api.order("run", KEY)
    over = api.until_over(KEY)
    assert over.state == "failed"
    assert over.error == f"cannot start {text}: Exec format error ({text})"


def test_a_refused_launch_fails_every_worker_of_the_attempt_with_the_reason(api: Api, agent: Agent) -> None:
    api.want(worker("gone/2/0", "m-0"), worker("gone/2/1", "m-1"))
    over = [api.until_over("gone/2/0"), api.until_over("gone/2/1")]
    assert [(report.state, report.error) for report in over] == [("failed", "no attempt 2")] * 2


def test_an_image_is_named_as_not_used(api: Api, agent: Agent) -> None:
    api.launches["run1", 1] = launch(KEY, "echo hello", image="pytorch:24.08")
    api.want(worker(KEY))
    api.until_state("arrived", KEY)
    api.order("run", KEY)
    api.until_over(KEY)
    assert (agent.place("m-0", KEY) / "log").read_text() == (
        "image pytorch:24.08 is not used by the agent executor: the command runs on the machine's own file system\n"
        "hello\n"
    )


def test_a_worker_the_machine_knows_nothing_of_is_not_started_by_an_order_to_run(api: Api, agent: Agent) -> None:
    api.launches["run1", 1] = launch(KEY, "true")
    api.want(worker(KEY, desired="run"))
    over = api.until_over(KEY)
    assert (over.state, over.error) == ("failed", "m-0 has lost what it knew of this worker")


def test_stopped_before_it_started(api: Api, agent: Agent) -> None:
    api.launches["run1", 1] = launch(KEY, "true")
    api.want(worker(KEY))
    api.until_state("arrived", KEY)
    api.order("stop", KEY)
    over = api.until_over(KEY)
    assert (over.state, over.signal, over.gate_opened_at) == ("exited", 15, None)
