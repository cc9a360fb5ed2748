"""Every reported fault has a line in tests/CASES.md, and every test and scenario that it names exists."""

import re

import pytest
import yaml
from house.source import ROOT

CASES = (ROOT / "tests" / "CASES.md").read_text()
ROW = re.compile(r"^\| ([A-Z]{2}\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[^`:]+\.py)::(test_\w+)`")
SCENARIO = re.compile(r"`(tests/[^`:]+\.yaml): ([^`]+)`")
IDS = """
    PG1 PG2 PG4 PG5 PG7 PG8 PG10 PG11 PG13 PG14 PG16 PG17 PG19 PG20
    DL1 DL2 DL4 DL5 DL7 DL8 DL10 DL11 DL13
    PR1 PR2 PR4 PR5 PR7 PR8 PR10 PR11 PR13 PR14 PR16 PR17 PR19 PR20
    RB1 RB2 RB4 RB5 RB7 RB8 RB10 RB11 RB13 RB14 RB16 RB17 RB19 RB20 RB22 RB23 RB25 RB26 RB28
    ST1 ST2 ST4 ST5 ST7 ST8 ST10 ST11 ST13 ST14
    BA1 BA2 BA4 BA5 BA7 BA8 BA10 BA11
    LM1 LM2 LM4 LM5 LM7 LM8 LM10 LM11 LM13 LM14 LM16 LM17 LM19
    SD1 SD2 SD4 SD5 SD7 SD8
    ID1 ID2
    CC1 CC2 CC4 CC5 CC7 CC8 CC10 CC11
    RE1 RE2 RE4 RE5 RE7 RE8 RE10 RE11 RE13 RE14 RE16
    TO1 TO2 TO4 TO5 TO7 TO8 TO10 TO11 TO13 TO14 TO16 TO17
    TI1 TI2 TI4 TI5 TI7
    LO1 LO2 LO4 LO5
    SZ1 SZ2 SZ4 SZ5 SZ7 SZ8 SZ10 SZ11 SZ13 SZ14
"""


def test_every_reported_fault_is_listed_once() -> None:
    assert sorted(row[0] for row in ROW.findall(CASES)) == sorted(IDS.split())


@pytest.mark.parametrize("row", ROW.findall(CASES), ids=lambda row: row[0])
def test_what_protects_exists(row: tuple[str, str, str]) -> None:
    named = row[2]
    for file, name in TEST.findall(named):
        assert re.search(rf"def {name}\(", (ROOT / file).read_text()), f"{file} has no {name}"
    for file, title in SCENARIO.findall(named):
        titles = [scenario["title"] for scenario in yaml.safe_load((ROOT / file).read_text())]
        assert title in titles, f"{file} has no scenario {title}"
    assert named.count("`") == 2 * (len(TEST.findall(named)) + len(SCENARIO.findall(named)))
    assert len(named.strip("; ")) > 10
