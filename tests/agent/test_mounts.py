"""Drives and files at their paths, and nothing of it on the machine afterwards."""

import os
import shlex
import tempfile
import traceback
from pathlib import Path

import pytest
from agent.double import Agent, Api, config, drive, launch, worker

from astraeus.agent import kernel
from astraeus.agent import mounts as view

PR_SET_DUMPABLE = 4
KEY = "run1/1/0"


def run(api: Api, agent: Agent, script: str, key: str = KEY, **more: object) -> str:
    """Run a script to its end and return its log."""
    uid, attempt, _ = key.split("/")
    api.launches[uid, int(attempt)] = launch(key, script, **more)
    api.want(worker(key))
    api.until(lambda: (report := api.last(key)) and report.state in ("arrived", "failed"))
    api.order("run", key)
    over = api.until_over(key)
    log = (agent.place("m-0", key) / "log").read_text()
    assert (over.exit_code, over.error) == (0, None), log
    return log


def mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


def test_paths_of_the_recipe_leave_nothing_on_the_machine(api: Api, agent: Agent) -> None:
    before, mounted = sorted(os.listdir("/")), mounts()
    assert "ckpt" not in before
    script = "cat /app/x/train.py; echo step 1 > /ckpt/latest; cat /ckpt/latest; ls -d /app /ckpt; test -w /tmp"
    log = run(api, agent, script, drives=[drive("/ckpt")], configs=[config("print('ü')\n", "/app/x/train.py")])
    assert log == "print('ü')\nstep 1\n/app\n/ckpt\n"
    kept = agent.directory / "machines/m-0/drives/acme/vision/data/latest"
    assert kept.read_text() == "step 1\n"
    assert sorted(os.listdir("/")) == before
    assert mounts() == mounted
    assert not (agent.place("m-0", KEY) / "staging").exists()


def test_the_rest_of_the_machine_stays_as_it_was(api: Api, agent: Agent, tmp_path: Path) -> None:
    side = tmp_path / "side"
    (side / "inner").mkdir(parents=True)
    (side / "file").write_text("there")
    (side / "link").symlink_to("file")
    mount = side / "missing" / "deep"
    q = shlex.quote(str(side))
    script = f"cat {q}/file {q}/link; echo kept > {q}/inner/new; echo here > {q}/missing/deep/x; ls {q}"
    log = run(api, agent, script, drives=[drive(str(mount))])
    assert log == "theretherefile\ninner\nlink\nmissing\n"
    assert sorted(path.name for path in side.iterdir()) == ["file", "inner", "link"]
    assert (side / "inner/new").read_text() == "kept\n"
    assert (agent.directory / "machines/m-0/drives/acme/vision/data/x").read_text() == "here\n"


def test_mount_points_that_exist_are_covered_and_uncovered(api: Api, agent: Agent, tmp_path: Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    (point / "own").write_text("machine's")
    file = tmp_path / "conf"
    file.write_text("machine's")
    log = run(api, agent, f"ls {point}; cat {file}", drives=[drive(str(point))], configs=[config("run's", str(file))])
    assert log == "run's"
    assert file.read_text() == (point / "own").read_text() == "machine's"


def test_shared_and_machine_drives(api: Api, agent: Agent) -> None:
    both = [drive("/own", "own"), drive("/all", "all", kind="shared")]
    run(api, agent, "echo a > /own/x; echo a > /all/x", "one/1/0", drives=both)
    root = agent.directory
    assert (root / "shared/acme/vision/all/x").exists()
    assert (root / "machines/m-0/drives/acme/vision/own/x").exists()


def test_a_drive_with_a_directory_of_its_own(api: Api, agent: Agent, tmp_path: Path) -> None:
    run(api, agent, "echo a > /ckpt/x", drives=[drive("/ckpt", source=str(tmp_path / "mine"))])
    assert (tmp_path / "mine" / "x").read_text() == "a\n"


def test_a_read_only_drive_cannot_be_written(api: Api, agent: Agent) -> None:
    log = run(api, agent, "echo a > /data/x || echo refused", drives=[drive("/data", read_only=True)])
    assert log.endswith("refused\n")
    assert "Read-only file system" in log


def test_a_file_inside_a_drive_does_not_hide_what_the_worker_writes_there(api: Api, agent: Agent) -> None:
    script = "cat /ckpt/conf/a.yaml; echo 5 > /ckpt/latest"
    log = run(api, agent, script, drives=[drive("/ckpt")], configs=[config("a: 1\n", "/ckpt/conf/a.yaml")])
    assert log == "a: 1\n"
    assert (agent.directory / "machines/m-0/drives/acme/vision/data/latest").read_text() == "5\n"


def test_a_script_can_be_the_command(api: Api, agent: Agent) -> None:
    script = config("#!/bin/sh\necho ran $1\n", "/app/run.sh")
    api.launches["run1", 1] = launch(KEY, ["/app/run.sh", "it"], configs=[script])
    api.want(worker(KEY))
    api.until_state("arrived", KEY)
    api.order("run", KEY)
    assert api.until_over(KEY).exit_code == 0
    assert (agent.place("m-0", KEY) / "log").read_text() == "ran it\n"


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"drives": [drive("/proc/x")]}, "cannot mount at /proc/x: the path belongs to the system"),
        ({"configs": [config("", "/etc")]}, "/etc is a directory on this machine"),
        ({"drives": [drive("/etc/hostname")]}, "/etc/hostname is not a directory on this machine"),
        ({"drives": [drive("/etc/hostname/x")]}, "/etc/hostname is not a directory"),
        ({"drives": [drive("/x"), drive("/x", "other")]}, "two mounts at /x"),
        (
            {"drives": [drive("/x", source="/no/such/place")]},
            "drive data: cannot use the directory /no/such/place on m-0: No such file or directory",
        ),
    ],
)
def test_a_mount_that_cannot_be_had_is_a_clear_failure(
    api: Api, agent: Agent, more: dict[str, object], error: str
) -> None:
    api.launches["run1", 1] = launch(KEY, "true", **more)
    api.want(worker(KEY))
    over = api.until_over(KEY)
    assert (over.state, over.error) == ("failed", error)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a read-only file system for the test")
def test_a_drive_on_a_read_only_file_system_is_a_clear_failure(api: Api, agent: Agent, tmp_path: Path) -> None:
    source = tmp_path / "frozen"
    source.mkdir()
    kernel.mount("tmpfs", str(source), "tmpfs", kernel.MS_RDONLY)
    try:
        api.launches["run1", 1] = launch(KEY, "true", drives=[drive("/x", source=str(source))])
        api.want(worker(KEY))
        over = api.until_over(KEY)
    finally:
        kernel.detach(str(source))
    assert over.state == "failed"
    assert over.error == "cannot mount drive data at /x for writing: its directory is read-only"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_mounts_work_without_being_root() -> None:
    before = sorted(os.listdir("/"))
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        for name in ("", "/drive", "/staging"):
            os.makedirs(place + name, exist_ok=True)
            os.chmod(place + name, 0o777)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                kernel.prctl(PR_SET_DUMPABLE, 1)
                drives = [view.Bind("d", place + "/drive", "/ckpt", False)]
                view.enter(drives, [view.File("/app/a", "a")], place + "/staging")
                Path("/ckpt/said").write_text(Path("/app/a").read_text() + str(os.geteuid()))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert Path(place, "drive", "said").read_text() == "a65534"
    assert sorted(os.listdir("/")) == before
