"""What is told to the reader, and the end of the telling when something is not as it should be."""


class Unexpected(Exception):
    """Something is not as the recipe says."""


def say(text: str = "") -> None:
    """One line to the reader, at once."""
    print(text, flush=True)


def expect(condition: object, complaint: str) -> None:
    """Go on only if the condition holds."""
    if not condition:
        raise Unexpected(complaint)
