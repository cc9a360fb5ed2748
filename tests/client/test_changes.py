"""Changing single values of a specification by their path."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astraeus.client.specfile import BadChange, apply, parse_change, parse_label
from astraeus.model.change import change


@pytest.mark.parametrize(
    ("path", "value", "after"),
    [
        ("spec.priority", 5, {"spec": {"priority": 5, "args": ["a", "b"]}}),
        ("/spec/priority", 5, {"spec": {"priority": 5, "args": ["a", "b"]}}),
        ("spec.args.1", "c", {"spec": {"priority": 1, "args": ["a", "c"]}}),
        ("spec.new.part", True, {"spec": {"priority": 1, "args": ["a", "b"], "new": {"part": True}}}),
        (
            "/metadata/labels/a.b~1c",
            "x",
            {"spec": {"priority": 1, "args": ["a", "b"]}, "metadata": {"labels": {"a.b/c": "x"}}},
        ),
        ("spec.priority", None, {"spec": {"args": ["a", "b"]}}),
        ("spec.absent", None, {"spec": {"priority": 1, "args": ["a", "b"]}}),
    ],
)
def test_changes(path: str, value: Any, after: Any) -> None:
    document: Any = {"spec": {"priority": 1, "args": ["a", "b"]}}
    apply(document, path, value)
    assert document == after


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("spec.args.2", "has no entry '2'; the list has 2"),
        ("spec.args.x", "has no entry 'x'"),
        ("spec.args.²", "has no entry"),
        ("spec.args.9999999999999", "has no entry"),
        ("spec.priority.x", "goes on after a plain value, at 'x'"),
        ("spec.priority.x.y", "goes on after a plain value, at 'x'"),
    ],
)
def test_paths_that_lead_nowhere(path: str, said: str) -> None:
    document: Any = {"spec": {"priority": 1, "args": ["a", "b"]}}
    with pytest.raises(BadChange, match=said):
        apply(document, path, 0)


@given(
    st.text(),
    st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)),
)
def test_no_path_breaks_any_document(path: str, document: Any) -> None:
    assert change(document, path, 1) is None or isinstance(change(document, path, 1), str)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("spec.priority=5", "spec.priority", 5),
        ("a=true", "a", True),
        ("a=null", "a", None),
        ("a=[1]", "a", [1]),
        ('a="5"', "a", "5"),
        ("a=on", "a", "on"),
        ("a=", "a", ""),
        ("a=b=c", "a", "b=c"),
        ("a=NaN", "a", "NaN"),
        ("a=-Infinity", "a", "-Infinity"),
        ("a=1e999", "a", "1e999"),
        pytest.param("a=" + "[" * 100_000, "a", "[" * 100_000, id="deep"),
        ("spec.task_template.env.STEPS=500", "spec.task_template.env.STEPS", "500"),
        ("/metadata/labels/a~1b=null", "/metadata/labels/a~1b", "null"),
    ],
)
def test_values_are_json_where_they_read_as_json(text: str, path: str, value: Any) -> None:
    assert parse_change(text) == (path, value)


@pytest.mark.parametrize("text", ["", "a", "=5", " =5"])
def test_what_is_no_change(text: str) -> None:
    with pytest.raises(BadChange):
        parse_change(text)


def test_labels() -> None:
    assert parse_label("a/b=c=d") == ("a/b", "c=d")
    with pytest.raises(BadChange):
        parse_label("=x")
