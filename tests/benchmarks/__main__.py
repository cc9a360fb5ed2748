"""`make bench`: every measurement, as a table on the terminal and as build/bench.json.

`python -m tests.benchmarks stack planner` measures only those; rows of others in build/bench.json stay.
"""

import importlib
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

PARTS = ("planner", "commit", "simulation", "topology", "stack", "recovery")
RESULT = Path("build") / "bench.json"


def main(parts: list[str]) -> None:
    """Measure `parts`, row by row, and keep what is there of the others."""
    kept = {row["name"]: row for row in json.loads(RESULT.read_text())} if RESULT.exists() else {}
    table = Table("name", "value", "unit")
    for part in parts:
        for row in importlib.import_module(f"tests.benchmarks.{part}").measure():
            print(f"{row['name']} {row['value']} {row['unit']}", flush=True)
            kept[row["name"]] = row
            RESULT.parent.mkdir(exist_ok=True)
            RESULT.write_text(json.dumps(list(kept.values()), indent=2) + "\n")
    for row in kept.values():
        table.add_row(row["name"], str(row["value"]), row["unit"])
    Console().print(table)


main(sys.argv[1:] or list(PARTS))
