"""Options and REST requests that a release had keep their meaning (docs/compatibility.md)."""

from __future__ import annotations

from typing import Any

from tests.golden.interfaces import OPTIONS, REST, list_options, list_parts, list_requests, read


def test_options_keep_key_type_and_default() -> None:
    """H4: a configuration file of an earlier release means the same."""
    present = list_options()
    broken = {key: present.get(key) for key, kept in read(OPTIONS).items() if not keeps(kept, present.get(key))}
    assert broken == {}


def keeps(kept: str, present: str | None) -> bool:
    """Whether an option still takes what it took, by the same default; more choices are fine."""
    if present is None:
        return False
    (kind, default), (present_kind, present_default) = kept.split("\t"), present.split("\t")
    choices, present_choices = (set(text.removeprefix("one of ").split(", ")) for text in (kind, present_kind))
    return choices <= present_choices and default == present_default


def test_requests_keep_their_paths_parameters_and_fields() -> None:
    """H4: a client of an earlier release goes on working."""
    present = {key: set(text.split()) for key, text in list_requests().items()}
    lost = {key: set(text.split()) - present.get(key, set()) for key, text in read(REST).items()}
    assert {key: parts for key, parts in lost.items() if parts} == {}


def test_what_is_new_joins_the_files() -> None:
    """So that the next release keeps it: run `python -m tests.golden.interfaces`."""
    assert list_options().keys() == read(OPTIONS).keys()
    assert list_requests().keys() == read(REST).keys()


def test_what_breaks_is_seen() -> None:
    assert keeps('one of A, B\t"A"', 'one of A, B, C\t"A"')
    assert not keeps('one of A, B\t"A"', 'one of A, C\t"A"')
    assert not keeps("integer\t1", "integer\t2")
    assert not keeps("integer\t1", None)
    schemas: dict[str, Any] = {"Job": {"properties": {"id": {}, "name": {}}}}
    answer = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}}}
    operation = {"parameters": [{"name": "limit", "in": "query"}], "responses": {"200": answer, "404": answer}}
    assert list_parts(operation, schemas) == {"?limit", "200", "application/json", "id", "name"}
