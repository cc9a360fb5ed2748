"""What can be read is read, the rest is listed, and nothing that a tool or a disk may hand us ends in a crash."""

import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fabrics import C1, C2, FIXTURES, A, B, D, derived, groups, scan, text

from astraeus.topology import iblinkinfo, ibnetdiscover, rates, tools
from astraeus.topology.owners import described
from astraeus.topology.scan import guid_of

PLAIN = f"{B}/ibnetdiscover.txt"
ALL = [f"{B}/{name}" for name in ("ibnetdiscover.txt", "ibnetdiscover-p.txt", "iblinkinfo-l.txt", "iblinkinfo.txt")]
TOOLS: tuple[tools.Tool, ...] = ("ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo")


GBPS = {"4xSDR": 8, "4xDDR": 16, "4xQDR": 32, "4xFDR10": 40, "4xFDR": 54, "4xEDR": 100, "4xHDR": 200, "4xNDR": 400}
GBPS |= {"4xXDR": 800, "2xHDR": 100, "2xNDR": 200, "1xNDR": 100, "4x???": 0, "??xNDR": 0}
WIRE = {("4X", "106.25 Gbps"): "4xNDR", ("4X", "25.78125 Gbps"): "4xEDR", ("4X", "10.0 Gbps (FDR10)"): "4xFDR10"}
WIRE |= {("4X", "10.0 Gbps"): "4xQDR", ("2X", "53.125 Gbps"): "2xHDR", ("4X", "212.5 Gbps"): "4xXDR"}


def test_rates() -> None:
    assert {rate: rates.gbps(rate) for rate in GBPS} == GBPS
    assert {words: rates.named(*words) for words in WIRE} == WIRE


@pytest.mark.parametrize(
    ("description", "owner"),
    [
        ("node001 mlx5_5", ("node001", "mlx5_5")),
        ("NODE001.cluster.example mlx5_10", ("node001", "mlx5_10")),
        ("b08-p1-dgx-08-c01 HCA-6", ("b08-p1-dgx-08-c01", "mlx5_5")),
        ("azure1 mlx5_ib0", ("azure1", "mlx5_ib0")),
        ("gpu01 ibp12s0", ("gpu01", "ibp12s0")),
        ("gpu01 ibP2p3s0f1", ("gpu01", "ibP2p3s0f1")),
        ("gpu01 rocep12s0", ("gpu01", "rocep12s0")),
        ("gpu01 mlx5_bond_0", ("gpu01", "mlx5_bond_0")),
        ("gpu01:mlx5_0", ("gpu01", "mlx5_0")),
        ("gpu-01-mlx5_3", ("gpu-01", "mlx5_3")),
        ("'gpu01 mlx5_0'", ("gpu01", "mlx5_0")),
        ("gpu01 HCA-1 (mlx5_3)", ("gpu01", "mlx5_3")),
        ("10.0.0.7 mlx5_0", ("10.0.0.7", "mlx5_0")),
        ("gpu01", None),
        ("Mellanox Technologies Aggregation Node", None),
        ("MT4129 ConnectX7   Mellanox Technologies", None),
        ("localhost HCA-1", None),
        ("ubuntu mlx5_0", None),
        ("MF0;leaf-r7-g1:MQM9700/U1", None),
        ("", None),
    ],
)
def test_descriptions(description: str, owner: tuple[str, str] | None) -> None:
    assert described(description) == owner


def test_guids_as_everybody_writes_them() -> None:
    assert guid_of("0xa088c203004d9c10") == guid_of("a088:c203:004d:9c10") == 0xA088C203004D9C10
    assert guid_of("0x2c90300a1b2c3") == 0x2C90300A1B2C3
    assert [guid_of(words) for words in ("", "0x0", "xyz", "0x1234567890abcdef0")] == [None] * 4


def test_the_tool_is_told_by_the_text() -> None:
    for path in sorted(FIXTURES.rglob("ib*.txt.gz")):
        tool = tools.sniff(tools.decode(path.read_bytes()))
        assert tool is not None, path
        assert path.name.startswith(tool)
    assert tools.sniff(text(f"{A}/sminfo.txt")) == "sminfo"
    assert tools.sniff("hello\nworld") is None


def test_other_spellings_of_a_link() -> None:
    records = """
vendid=0x2c9
devid=0xd2f2
switchguid=0x10(10)
Switch\t65 "S-0000000000000010"\t\t# "a "quoted" leaf" lid 5 4xSDR" enhanced port 0 lid 55 lmc 0
[1][ext 2]\t"H-0000000000000020"[1](21) \t\t# "n1 mlx5_0" lid 10 2xNDR s=4 w=2 v=4
[2]\t"H-0000000000000030"[2][ext 1](32) \t\t# "odd " lid 1 4xQDR name" lid 11 4x???
[3]\t"R-0000000000000040"[1](41) \t\t# "router" lid 12 4xNDR
"""
    found = ibnetdiscover.parse(records)
    assert (found.unread, found.peers[0x10, 1], found.rates[0x10, 1]) == (0, (0x20, 1), "2xNDR")
    assert (found.nodes[0x30].description, found.rates[0x10, 2]) == ('odd " lid 1 4xQDR name', "4x???")
    assert found.nodes[0x10].description == 'a "quoted" leaf" lid 5 4xSDR'
    assert found.resolve(0x21) == 0x20
    assert 0x40 not in found.nodes


def test_a_speed_that_one_tool_has_no_name_for_is_taken_from_the_other() -> None:
    plain = ibnetdiscover.parse(text(PLAIN).replace("4xNDR", "4x???"))
    both = tools.together([("ibnetdiscover", plain), ("iblinkinfo", iblinkinfo.parse(text(f"{B}/iblinkinfo-l.txt")))])
    slow = {one.place for one in derived(plain).findings if one.kind == "degraded"}
    assert {one.kind for one in derived(plain).findings} >= {"port_missing", "miswired", "uplink_down"}
    assert not slow & {"node001 mlx5_0", "node016 mlx5_7"}
    slow = {one.place for one in derived(both).findings if one.kind == "degraded"}
    assert slow == {"node003 mlx5_4", "node006 mlx5_1"}


def test_a_better_speed_is_a_mark_only_where_it_is_rare() -> None:
    lines = text(f"{A}/iblinkinfo-l.txt")
    assert scan(f"{A}/iblinkinfo-l.txt").better == {}
    quiet = lines.replace('" (Could be 12X )', '" ( )')
    one = quiet.replace('8[  ] "MF0;leaf-r7-g1:MQM9700/U1" ( )', '8[  ] "MF0;leaf-r7-g1:MQM9700/U1" (Could be 8X)', 1)
    assert list(iblinkinfo.parse(one).better.values()) == ["8X"]
    assert [finding.kind for finding in derived(iblinkinfo.parse(one)).findings] == ["degraded"]
    assert derived(iblinkinfo.parse(quiet)).findings == ()


def test_a_truncated_output_says_what_it_can() -> None:
    """The switches come first, and their lines name the adapters: the groups are there before the adapters are."""
    whole = text(f"{A}/ibnetdiscover.txt")
    switches = whole[: whole.index("\nCa\t")]
    assert groups(derived(ibnetdiscover.parse(switches))) == groups(derived(ibnetdiscover.parse(whole)))
    cut = ibnetdiscover.parse(whole[: len(switches) - 31])
    assert cut.unread <= 1


def test_a_torn_or_false_gzip_file() -> None:
    data = (FIXTURES / f"{PLAIN}.gz").read_bytes()
    assert tools.decode(data[: len(data) // 2]).startswith("#\n# Topology file")
    assert tools.decode(b"\x1f\x8bnot gzip at all") == ""
    assert tools.decode(zlib.compress(b"x")[2:]) is not None
    assert len(derived(ibnetdiscover.parse(tools.decode(data[: len(data) // 2]))).fabrics) == 1


def test_gzip_files_put_one_after_the_other_are_all_read() -> None:
    one, other = (FIXTURES.joinpath(f"{folder}/ibnetdiscover.txt.gz").read_bytes() for folder in (C1, C2))
    assert tools.decode(one + other) == tools.decode(one) + tools.decode(other)
    assert tools.decode(one + other[:9] + b"torn") == tools.decode(one)


def test_lines_that_cannot_be_read_are_listed_and_counted() -> None:
    found = ibnetdiscover.parse("nonsense\n[1]\tbroken\n" + text(PLAIN) + "\x00\x01\n" * 1000)
    assert found.unread == 1002
    assert [(one.line, one.text) for one in found.problems[:2]] == [(1, "nonsense"), (2, "[1]\tbroken")]
    assert len(found.problems) < 300
    assert len(groups(derived(found))) == 2


@pytest.mark.parametrize("name", ALL)
def test_spoiled_outputs_never_crash(name: str) -> None:
    lines = text(name).splitlines()
    tool: tools.Tool = "ibnetdiscover" if "ibnetdiscover" in name else "iblinkinfo"
    for seed in range(25):
        dice = random.Random(seed)
        spoilt = [_spoil(line, dice) for line in lines if dice.random() > 0.05]
        derived(tools.parse("\n".join(spoilt), tool))


def _spoil(line: str, dice: random.Random) -> str:
    if dice.random() > 0.1 or not line:
        return line
    at = dice.randrange(len(line))
    return dice.choice((line[:at], line[at:], line[:at] + chr(dice.randrange(1, 0x3FF)) + line[at + 1 :], line + line))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400), st.sampled_from(TOOLS))
def test_any_text(words: str, tool: tools.Tool) -> None:
    derived(tools.parse(words, tool))
    tools.sniff(words)


LINES = sorted({line for name in (*ALL, f"{B}/ibqueryerrors.txt") for line in text(name).splitlines()[:120]})


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=60), st.sampled_from(TOOLS))
def test_real_lines_in_any_order(lines: list[str], tool: tools.Tool) -> None:
    derived(tools.parse("\n".join(lines), tool))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    words = tools.decode(data)
    tool = tools.sniff(words)
    if tool is not None:
        derived(tools.parse(words, tool))


def test_the_large_fixture_of_the_other_tool_reads_alike() -> None:
    one, other = (scan(f"{D}/{name}") for name in ("ibnetdiscover.txt", "iblinkinfo.txt"))
    assert len(one.peers) == len(other.peers)
