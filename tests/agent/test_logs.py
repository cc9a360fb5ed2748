"""Logs reach their readers byte by byte, however large, broken or slow."""

import io
from pathlib import Path

import psutil
from agent.double import Agent, Api, launch, worker
from hypothesis import given
from hypothesis import strategies as st

from astraeus.agent import uploads

KEY = "run1/1/0"


def finished(api: Api, agent: Agent, script: str, key: str = KEY) -> None:
    uid, attempt, _ = key.split("/")
    api.launches[uid, int(attempt)] = launch(key, script)
    api.want(worker(key))
    api.until_state("arrived", key)
    api.order("run", key)
    api.until_over(key)


def test_half_a_character_and_zero_bytes_arrive_as_they_are(api: Api, agent: Agent) -> None:
    finished(api, agent, r"printf 'gr\303\274\303'; printf '\000\377' >&2")
    assert api.whole_log(KEY, "m-0", "a") == b"gr\xc3\xbc\xc3\x00\xff"


def test_the_last_lines(api: Api, agent: Agent) -> None:
    finished(api, agent, "for i in 1 2 3 4 5; do echo line $i; done; printf rest")
    assert api.whole_log(KEY, "m-0", "a", tail=3) == b"line 4\nline 5\nrest"
    assert api.whole_log(KEY, "m-0", "b", tail=0) == b""
    assert api.whole_log(KEY, "m-0", "c", tail=100).startswith(b"line 1\n")


def test_a_hundred_megabytes_in_constant_memory(api: Api, agent: Agent) -> None:
    assert agent.process
    program = psutil.Process(agent.process.pid)
    finished(api, agent, "head -c 100000000 /dev/zero; echo end")
    before = program.memory_info().rss
    read = api.whole_log(KEY, "m-0", "a")
    assert len(read) == 100_000_004
    assert read.endswith(b"end\n")
    assert program.memory_info().rss - before < 20_000_000


def test_following_ends_with_the_worker_and_misses_nothing(api: Api, agent: Agent) -> None:
    api.launches["run1", 1] = launch(KEY, "echo one; while ! test -e go; do sleep 0.02; done; echo two; printf three")
    api.want(worker(KEY))
    api.until_state("arrived", KEY)
    for name in "abcdef":
        api.read_log(KEY, "m-0", name, follow=True)
    api.order("run", KEY)
    api.until(lambda: all(api.logs.get(name) == b"one\n" for name in "abcdef"), "six readers read")
    (agent.place("m-0", KEY) / "scratch/go").touch()
    api.until(lambda: set("abcdef") <= api.logs_ended, "six readers end")
    assert [bytes(api.logs[name]) for name in "abcdef"] == [b"one\ntwo\nthree"] * 6


def test_a_log_of_an_attempt_long_forgotten_and_one_that_never_was(api: Api, agent: Agent) -> None:
    finished(api, agent, "echo kept")
    api.drop(KEY)
    api.until(lambda: (agent.place("m-0", KEY) / "forgotten").exists(), "forgotten")
    assert api.whole_log(KEY, "m-0", "a", follow=True) == b"kept\n"
    assert api.whole_log("other/1/0", "m-0", "b", follow=True) == b""


def test_a_reader_that_goes_away_ends_the_upload(api: Api, agent: Agent) -> None:
    assert agent.process
    api.launches["run1", 1] = launch(KEY, "echo one; exec sleep 1000")
    api.want(worker(KEY))
    api.until_state("arrived", KEY)
    api.order("run", KEY)
    api.hang_up.add("a")
    api.read_log(KEY, "m-0", "a", follow=True)
    api.until(lambda: "a" in api.logs_ended, "hung up")
    log = str(agent.place("m-0", KEY) / "log")
    program = psutil.Process(agent.process.pid)
    api.until(lambda: log not in [file.path for file in program.open_files()], "the agent closes the log")


@given(st.binary(max_size=200).map(lambda text: text.replace(b"\x00", b"\n")), st.integers(0, 12), st.integers(1, 64))
def test_tail_is_the_last_lines_whatever_the_block_size(content: bytes, lines: int, block: int) -> None:
    whole = uploads.CHUNK
    uploads.CHUNK = block
    try:
        offset = uploads.tail_offset(io.BytesIO(content), lines)  # type: ignore[arg-type]
    finally:
        uploads.CHUNK = whole
    kept = content.split(b"\n")
    parts = [line + b"\n" for line in kept[:-1]] + ([kept[-1]] if kept[-1] else [])
    assert content[offset:] == b"".join(parts[len(parts) - lines :] if lines < len(parts) else parts)


async def test_a_log_that_is_not_there_is_empty_unless_it_may_come(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert [chunk async for chunk in uploads.follow(path, None, False, lambda: False, lambda: False)] == []
    assert [chunk async for chunk in uploads.follow(path, None, True, lambda: False, lambda: True)] == []
    path.write_bytes(b"x" * 10)
    assert [chunk async for chunk in uploads.follow(path, None, True, lambda: True, lambda: False)] == [b"x" * 10]
