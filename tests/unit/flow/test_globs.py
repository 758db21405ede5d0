"""Patterns of paths: they mean what they do in a shell, and no path takes long, whoever has named the file."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.flow.globs import compiled, split_pattern


@pytest.mark.parametrize(
    ("pattern", "meant", "others"),
    [
        ("*.csv", ["a.csv", ".csv", "a.b.csv"], ["a.csvx", "in/a.csv", "a.CSV"]),
        ("**/*.csv", ["a.csv", "x/a.csv", "x/y/a.csv"], ["a.txt", "x/a.csv/b"]),
        ("x/**/y/*", ["x/y/a", "x/1/y/a", "x/y/y/a", "x/1/2/y/a"], ["x/a", "y/a", "x/y/a/b"]),
        ("**/a/**/b", ["a/b", "x/a/b", "a/x/b", "a/a/b/b"], ["b", "a/x", "a/b/c"]),
        ("**", ["a"], ["a/b"]),
        ("a?[0-9][!x-z]*", ["ab1a", "a.9-more"], ["ab1x", "abcd", "a1a"]),
        ("a[", ["a["], ["a"]),
        ("*a*b*a*", ["aba", "xaxbxax"], ["ab", "baa"]),
        ("*ab", ["ab", "abab", "aab"], ["aba"]),
    ],
)
def test_a_pattern_means_what_it_does_in_a_shell(pattern: str, meant: list[str], others: list[str]) -> None:
    glob = compiled(pattern)
    assert [path for path in (*meant, *others) if glob.fullmatch(path)] == meant


@given(st.text("ab*?/", max_size=8), st.text("ab/", max_size=10))
def test_a_pattern_means_what_it_means_read_letter_by_letter(pattern: str, path: str) -> None:
    *folders, name = pattern.split("/")
    parts = ["(?:[^/]*/)*" if each == "**" else f"{_letters(each)}/" for each in folders]
    assert compiled(pattern).fullmatch(path) == bool(re.fullmatch("".join(parts) + _letters(name), path))


def _letters(text: str) -> str:
    return text.replace("*", "[^/]*").replace("?", "[^/]")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("*a" * 200 + "b", "a" * 255), ("**/" * 160 + "x", "a/" * 300 + "y"), ("**/*a*/" * 60 + "x", "aa/" * 200 + "y")],
)
def test_no_path_takes_long(pattern: str, path: str) -> None:
    assert not compiled(pattern).fullmatch(path)


def test_a_path_is_parted_from_its_pattern() -> None:
    assert split_pattern("/data/in/*.csv") == ("/data/in", "*.csv")
    assert split_pattern("/data/in/") == ("/data/in", None)
