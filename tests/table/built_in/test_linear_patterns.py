"""Regular expressions that run in Arrow's kernels: what is translated for them means the same as in Java."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from tests.table.evaluated import column

from penstock.sql.functions.java_regex import GROUP, compiled, linear

CHARS = "ab.1_ -\n\r\x0b\x85\u2028é😀"
SINGLE = st.sampled_from(
    [
        "a",
        "b",
        "é",
        "😀",
        ".",
        r"\.",
        r"\d",
        r"\D",
        r"\w",
        r"\W",
        r"\s",
        r"\S",
        "[ab]",
        "[^a]",
        "[a-c1]",
        r"[\d_.]",
        r"[^\s]",
    ]
)
REPEATED = st.tuples(
    SINGLE, st.sampled_from(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{0,2}?"])
).map("".join)
PATTERNS = st.recursive(
    st.lists(REPEATED, min_size=1, max_size=3).map("".join),
    lambda inner: st.one_of(
        inner.map("({})".format),
        inner.map("(?:{})".format),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, inner).map("".join),
        inner.map("^{}".format),
    ),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(PATTERNS, st.lists(st.text(CHARS, max_size=8), min_size=1, max_size=6), st.integers(0, 2))
def test_what_is_translated_finds_the_same(pattern: str, texts: list[str], group: int) -> None:
    expected = [compiled(pattern).search(text) for text in texts]
    contained = linear(pattern)
    assert contained is not None
    found = pc.match_substring_regex(pa.array(texts), contained).to_pylist()
    assert found == [one is not None for one in expected]
    extracting = linear(pattern, group)
    if extracting is not None:
        extracted = pc.struct_field(pc.extract_regex(pa.array(texts), extracting), GROUP).to_pylist()
        assert extracted == [one and one.group(group) for one in expected]


@pytest.mark.parametrize(
    "pattern",
    [
        "a$",
        "(a)*",
        r"(a)\1",
        "(?=a)",
        "(?i)a",
        "a++",
        "a{1001}",
        "[a&&b]",
        "[[a]b]",
        r"\p{L}",
        r"\bA",
        "(a",
        "a)",
        "^*",
        "[",
        "\\",
    ],
)
def test_what_might_differ_is_left_to_pythons(pattern: str) -> None:
    assert linear(pattern) is None


@pytest.mark.parametrize("pattern", ["(a)|b", "a|(b)", "(?:(a)|b)c"])
def test_a_group_that_may_take_no_part_is_null_which_it_is_not_there(pattern: str) -> None:
    assert linear(pattern, 1) is None
    assert linear(pattern, 0) is not None


def test_rows_that_have_no_match_are_null() -> None:
    texts = ["x?channel_id=7&y", "channel_id=", None, "", "nothing"] * 20
    found = column(r"REGEXP_EXTRACT(t, '(&|\?|^)channel_id=([^&]*)', 2)", t=texts)
    assert found == ["7", "", None, None, None] * 20
    assert column("REGEXP(t, 'l_id=[0-9]')", t=texts) == [True, False, None, False, False] * 20
