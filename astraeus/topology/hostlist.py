"""Slurm's short form of many names: `node[001-008,010]`."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from astraeus.topology.owners import natural

NAMES_MOST = 100_000
RANGE = re.compile(r"(\d+)(?:-(\d+))?")
TAIL = re.compile(r"(.*?)(\d+)")


def expand(text: str) -> list[str]:
    """All names of a list. Raises ValueError when it cannot be read or names too many."""
    found: list[str] = []
    for part in _parts(text):
        found.extend(_expanded(part, NAMES_MOST - len(found)))
    return found


def _parts(text: str) -> Iterator[str]:
    """The parts between commas that are not inside brackets."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if depth not in (0, 1):
            raise ValueError(f"{text[:80]!r} has brackets that do not match")
        if c == "," and not depth:
            yield text[start:i].strip()
            start = i + 1
    if depth:
        raise ValueError(f"{text[:80]!r} has brackets that do not match")
    yield text[start:].strip()


def _expanded(part: str, room: int) -> list[str]:
    if not part:
        return []
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, tail = rest.partition("]")
    tails = _expanded(tail, room) or [""]
    found: list[str] = []
    for piece in inside.split(","):
        match = RANGE.fullmatch(piece.strip())
        if match is None or len(piece) > 40:
            raise ValueError(f"{piece[:40]!r} is no range of numbers")
        first, last = match[1], match[2] or match[1]
        if (int(last) - int(first) + 1) * len(tails) > room - len(found):
            raise ValueError(f"{part[:80]!r} names more than {NAMES_MOST} hosts")
        numbers = range(int(first), int(last) + 1)
        found.extend(f"{head}{number:0{len(first)}}{end}" for number in numbers for end in tails)
    return found


def compress(names: Iterable[str]) -> str:
    """These names in the short form, in their natural order."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    plain: list[str] = []
    for name in sorted(set(names), key=natural):
        match = TAIL.fullmatch(name)
        if match is None:
            plain.append(name)
            continue
        digits = match[2]
        # Numbers of one width form a range; those without leading zeros may grow wider.
        groups[match[1], len(digits) if digits[0] == "0" else 0].append(int(digits))
    return ",".join([*plain, *(_grouped(head, width, numbers) for (head, width), numbers in _joined(groups))])


def _joined(groups: dict[tuple[str, int], list[int]]) -> Iterator[tuple[tuple[str, int], list[int]]]:
    """Numbers without leading zeros belong to those with zeros that have as many digits."""
    for (head, width), numbers in list(groups.items()):
        if width == 0:
            continue
        free = groups.get((head, 0), [])
        numbers.extend(number for number in free if len(str(number)) == width)
        groups[head, 0] = [number for number in free if len(str(number)) != width]
    for key, numbers in groups.items():
        if numbers:
            yield key, sorted(numbers)


def _grouped(head: str, width: int, numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = [f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in spans]
    if len(numbers) == 1:
        return f"{head}{words[0]}"
    return f"{head}[{','.join(words)}]"
