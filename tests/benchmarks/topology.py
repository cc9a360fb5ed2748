"""How long a scan takes to be read and understood, and what memory that needs: 511 and 1,023 machines.

Run with `python -m tests.benchmarks.topology`; prints the rows of build/bench.json. Each size has a process of its own,
so that the peak of its memory is its own: the interpreter, the modules, the text and everything derived from it.
Seconds are of the processor, on one thread: what the wall clock shows where nothing else runs.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from astraeus.topology import tools
from astraeus.topology.derive import derive
from astraeus.topology.owners import Inventory
from tests.support.fabrics import D, ibnetdiscover, text

ROOT = Path(__file__).parents[2]
REPEATS = 5
BYTES_PER_UNIT = 1024 if sys.platform == "linux" else 1
Row = dict[str, Any]


def measure() -> Iterator[Row]:
    """The rows of this benchmark."""
    for size in (511, 1023):
        command = [sys.executable, "-m", "tests.benchmarks.topology", str(size)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        seconds, megabytes = json.loads(done.stdout)
        yield {"name": f"derive_{size}_s", "value": round(seconds, 3), "unit": "s"}
        if size == 1023:
            yield {"name": "derive_1023_mb", "value": round(megabytes, 1), "unit": "MB"}


def once(words: str) -> float:
    """Seconds of the processor to read and derive a text."""
    began = time.process_time()
    tool = tools.sniff(words)
    assert tool is not None
    found = derive(tools.parse(words, tool), Inventory())
    assert len(found.fabrics) == 1
    return time.process_time() - began


def main(size: int) -> None:
    """Print the best time of a few and the peak of memory."""
    words = text(f"{D}/ibnetdiscover.txt") if size == 511 else ibnetdiscover(size)
    seconds = min(once(words) for _ in range(REPEATS))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES_PER_UNIT / 1e6
    print(json.dumps([seconds, peak]))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(int(sys.argv[1]))
    else:
        for row in measure():
            print(json.dumps(row))
