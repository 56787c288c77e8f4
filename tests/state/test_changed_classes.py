"""Pickled values whose classes have moved or changed since the snapshot (H4)."""

import sys
import types
from typing import Any

import pytest
from tests.state.stateful import harness, read, written

from penstock.codecs.pickling import dumps
from penstock.common import Types
from penstock.runtime.operators.base import UserCodeError
from penstock.state import migrations
from penstock.state.errors import StateMigrationError
from penstock.state.loading import StateLoader
from penstock.state.snapshot import merge_keyed
from penstock.state.states import ListStateDescriptor, ValueStateDescriptor

MODULE = "shop_of_the_tests"
PRELUDE = """
from __future__ import annotations
import dataclasses, enum
from dataclasses import dataclass, field
from typing import NamedTuple
"""


def program(source, module=MODULE):
    """Today's version of the user's module."""
    made = types.ModuleType(module)
    sys.modules[module] = made
    exec(compile(PRELUDE + source, f"{module}.py", "exec"), made.__dict__)
    return made


@pytest.fixture(autouse=True)
def _no_traces():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(MODULE):
            del sys.modules[name]
    for path in migrations.registered():
        migrations.unregister(path)


def stored(value, info=None):
    return written(ValueStateDescriptor("s", info), lambda s, v: s.update(v), [("k", value)])


def found(snapshot, info=None):
    (value,) = read(ValueStateDescriptor("s", info), lambda s, _: s.value(), ["k"], snapshot)
    return value


V1 = {
    "dataclass": "@dataclass\nclass Visit:\n    page: str\n    count: int = 0\n",
    "frozen": "@dataclass(frozen=True)\nclass Visit:\n    page: str\n    count: int = 0\n",
    "slots": "@dataclass(slots=True)\nclass Visit:\n    page: str\n    count: int = 0\n",
    "frozen slots": "@dataclass(frozen=True, slots=True)\nclass Visit:\n    page: str\n    count: int = 0\n",
    "tuple": "class Visit(NamedTuple):\n    page: str\n    count: int = 0\n",
}
LATER: dict[str, tuple[str, dict[str, Any]]] = {
    "gains": ("    page: str\n    count: int = 0\n    tags: str = 'none'\n", {"page": "/", "count": 3, "tags": "none"}),
    "gains ahead": (
        "    tags: str = 'none'\n    page: str = ''\n    count: int = 0\n",
        {"tags": "none", "page": "/", "count": 3},
    ),
    "loses": ("    count: int = 0\n", {"count": 3}),
    "reordered": ("    count: int\n    page: str\n", {"count": 3, "page": "/"}),
}


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("family", V1)
@pytest.mark.parametrize("change", LATER)
@pytest.mark.parametrize("declared", [False, True])
def test_fields_come_and_go(family, change, declared):
    """H4: new fields get their defaults, lost ones go, and order does not matter, declared or only pickled."""
    old = program(V1[family])
    snapshot = stored(old.Visit("/", 3), Types.CLASS(old.Visit) if declared else None)
    fields, expected = LATER[change]
    new = program(V1[family].split("    page")[0] + fields)
    value = found(snapshot, Types.CLASS(new.Visit) if declared else None)
    assert type(value) is new.Visit
    assert value == new.Visit(**expected)
    assert getattr(value, "__dict__", expected) == expected


@pytest.mark.usefixtures("each_backend")
def test_an_unchanged_class_is_loaded_as_ever():
    """H4: no value is mended when nothing has changed; the history of files goes on."""
    old = program(V1["dataclass"])
    snapshot = stored([old.Visit("/", 3)] * 2)
    value = found(snapshot)
    assert value[0] is value[1]
    assert value[0] == old.Visit("/", 3)


@pytest.mark.usefixtures("each_backend")
def test_each_instance_gets_a_default_of_its_own():
    """H4: a default factory is called for every instance; instances that were one stay one."""
    old = program("@dataclass\nclass Empty:\n    pass\n" + V1["dataclass"])
    shared = old.Visit("/", 1)
    snapshot = stored({"a": shared, "b": shared, "c": old.Visit("/x", 2), "e": old.Empty()})
    new = program(
        "@dataclass\nclass Empty:\n    n: int = 7\n"
        + V1["dataclass"]
        + "    seen: list = field(default_factory=list)\n"
    )
    value = found(snapshot)
    assert value["a"] is value["b"]
    assert value["a"].seen == []
    assert value["a"].seen is not value["c"].seen
    assert (type(value["e"]), value["e"].n) == (new.Empty, 7)


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("family", ["dataclass", "tuple"])
def test_a_new_field_needs_a_default(family):
    """H4: the error names the state, the class, the field, and the way out."""
    snapshot = stored(program(V1[family]).Visit("/", 3))
    program(V1[family].split("    page")[0] + "    who: str\n    page: str\n")
    with pytest.raises(
        StateMigrationError, match=f"Operator: state 's': field 'who' of class 'Visit' of module '{MODULE}'"
    ):
        found(snapshot)


@pytest.mark.usefixtures("each_backend")
def test_declared_fields_change_their_types():
    """H4: fields of a declared class widen; others are an error before any record."""
    old = program("@dataclass\nclass Visit:\n    page: str\n    cost: int\n")
    snapshot = stored(old.Visit("/", 3), Types.CLASS(old.Visit))
    program("@dataclass\nclass Visit:\n    page: int\n    cost: int\n")
    with pytest.raises(UserCodeError) as error:
        found(snapshot, Types.CLASS(sys.modules[MODULE].Visit))
    assert f"{MODULE}:Visit<page STRING, cost BIG_INT>" in str(error.value.__cause__)
    assert "field page: STRING cannot become BIG_INT" in str(error.value.__cause__)


# --- classes that moved -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("family", V1)
@pytest.mark.parametrize("gone", ["class", "module"])
def test_a_class_that_is_gone(family, gone):
    """H4: the error names the operator, the state, the class, the module, and the registry."""
    snapshot = stored(program(V1[family]).Visit("/", 3))
    if gone == "class":
        program("")
    else:
        del sys.modules[MODULE]
    with pytest.raises(StateMigrationError) as error:
        found(snapshot)
    text = str(error.value)
    assert text.startswith(
        f"Operator: state 's' holds instances of class 'Visit' of module '{MODULE}', which no longer exists"
    )
    assert f'penstock.state.migrations.register("{MODULE}:Visit"' in text


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("family", V1)
def test_a_registered_class_takes_the_place_of_the_old_one(family):
    """H4: a class that was moved, renamed, and given a field on the way; the next snapshot needs no registry."""
    snapshot = stored([program(V1[family]).Visit("/", 3)])
    del sys.modules[MODULE]
    new = program(V1[family].replace("Visit", "PageVisit") + "    tags: str = 'none'\n", MODULE + "_moved")
    migrations.register(f"{MODULE}:Visit", new.PageVisit)
    with harness(ValueStateDescriptor("s"), lambda s, _: s.value(), snapshot) as run:
        run.process(("k", None))
        assert run.values == [[new.PageVisit("/", 3, "none")]]
        again = run.snapshot(2)
    migrations.unregister(f"{MODULE}:Visit")
    assert found(again) == [new.PageVisit("/", 3, "none")]


@pytest.mark.usefixtures("each_backend")
def test_a_declared_class_that_moved():
    """H4: without the registry a declared class that moved is another class."""
    old = program(V1["dataclass"])
    snapshot = stored(old.Visit("/", 3), Types.CLASS(old.Visit))
    new = program(V1["dataclass"], MODULE + "_moved")
    with pytest.raises(UserCodeError) as error:
        found(snapshot, Types.CLASS(new.Visit))
    assert "if it was moved or renamed, penstock.state.migrations.register" in str(error.value.__cause__)
    migrations.register(f"{MODULE}:Visit", new.Visit)
    assert found(snapshot, Types.CLASS(new.Visit)) == new.Visit("/", 3)


@pytest.mark.usefixtures("each_backend")
def test_a_function_makes_the_new_object():
    """H4: it gets the old attributes by name; whoever shared the old object shares the new one."""
    visit = program("class Visit:\n    def __init__(self, page):\n        self.page = page\n").Visit("/")
    snapshot = stored({"a": visit, "b": [visit]})
    new: Any = program("@dataclass\nclass Page:\n    path: str\n    depth: int\n")
    migrations.register(f"{MODULE}:Visit", lambda page: new.Page(page, page.count("/")))
    value = found(snapshot)
    assert value["a"] == new.Page("/", 1)
    assert type(value["a"]) is new.Page
    assert value["a"] is value["b"][0]


@pytest.mark.usefixtures("each_backend")
def test_a_function_makes_anything_of_a_named_tuple():
    """H4: it gets the fields in order."""
    snapshot = stored([program(V1["tuple"]).Visit("/", 3)])
    migrations.register(f"{MODULE}:Visit", lambda page, count: {page: count})
    assert found(snapshot) == [{"/": 3}]


@pytest.mark.usefixtures("each_backend")
def test_a_class_of_the_users_script():
    """H4: it lies in the pickle in full, and is made anew as it was, unless it is registered."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(PRELUDE + V1["dataclass"], namespace)
    snapshot = stored([namespace["Visit"]("/", 3)])
    assert found(snapshot)[0].count == 3
    new = program(V1["dataclass"] + "    tags: str = 'none'\n")
    migrations.register("__main__:Visit", new.Visit)
    assert found(snapshot) == [new.Visit("/", 3, "none")]


@pytest.mark.usefixtures("each_backend")
def test_classes_that_pickle_in_their_own_way_see_to_themselves():
    """H4: `__setstate__` is the user's own migration."""
    own = "\n    def __setstate__(self, state):\n        self.__dict__.update(state, tags='own')\n"
    snapshot = stored(program(V1["dataclass"] + own).Visit("/", 3))
    new = program(V1["dataclass"] + "    tags: str = 'none'" + own)
    assert found(snapshot) == new.Visit("/", 3, "own")


def test_an_enum_that_lost_a_member():
    """H4: whatever a changed class raises becomes an error that names the state."""
    snapshot = stored(program("class Color(enum.Enum):\n    RED = 1\n    BLUE = 2\n").Color.BLUE)
    program("class Color(enum.Enum):\n    RED = 1\n")
    # Python before 3.11.4 pickles members by name.
    refusal = r"state 's': a value can no longer be read.*(2 is not a valid Color|AttributeError: BLUE)"
    with pytest.raises(StateMigrationError, match=refusal):
        found(snapshot)


@pytest.mark.usefixtures("each_backend")
def test_a_class_within_a_class():
    """H4: it is found by its qualified name."""
    snapshot = stored(program("class Shop:\n    @dataclass\n    class Visit:\n        page: str\n").Shop.Visit("/"))
    assert found(snapshot).page == "/"


# --- keys -------------------------------------------------------------------------------------------------------------

KEY = "@dataclass(frozen=True)\nclass Key:\n    id: int\n"


@pytest.mark.usefixtures("each_backend")
def test_the_class_of_a_key_may_move():
    """H4, D4: the hash of a key is that of its name and fields, not of its module."""
    snapshot = written(ValueStateDescriptor("s"), lambda s, v: s.update(v), [(program(KEY).Key(1), "v")])
    new = program(KEY, MODULE + "_moved")
    migrations.register(f"{MODULE}:Key", new.Key)
    assert read(ValueStateDescriptor("s"), lambda s, _: s.value(), [new.Key(1)], snapshot) == ["v"]


@pytest.mark.usefixtures("each_backend")
def test_the_class_of_a_key_may_not_change():
    """H4, D4: a key that hashes otherwise would never be found again."""
    snapshot = written(ValueStateDescriptor("s"), lambda s, v: s.update(v), [(program(KEY).Key(1), "v")])
    program(KEY + "    shop: str = ''\n")
    with pytest.raises(StateMigrationError, match=r"state 's': its keys are instances of Key.*must not change"):
        read(ValueStateDescriptor("s"), lambda s, _: s.value(), [], snapshot)


# --- files and the registry -------------------------------------------------------------------------------------------


def test_merged_histories_still_tell_their_classes():
    """G7, H4: merging files keeps what they say about classes."""
    descriptor = ListStateDescriptor("s")
    visit = program(V1["dataclass"]).Visit
    with harness(descriptor, lambda s, v: s.add(v)) as run:
        run.process(("k", visit("/", 1)))
        (first,) = run.context.keyed.capture(1)
        run.context.keyed.confirm(1)
        run.process(("l", 1))
        (second,) = run.context.keyed.capture(2)
    merged = merge_keyed([first.to_bytes(128), second.to_bytes(128)])
    assert f"{MODULE}:Visit".encode() in merged


def test_a_file_that_tells_nothing_is_loaded_with_care():
    """H4, H5: another tool need not say which classes its pickles name."""
    data = dumps(program(V1["dataclass"]).Visit("/", 3))
    new = program(V1["dataclass"] + "    tags: list = field(default_factory=list)\n")
    loader = StateLoader("Op", "s", 128)
    assert loader.for_file(None)(data) == new.Visit("/", 3, [])
    assert loader.has_changed


@pytest.mark.parametrize("path", ["", "Visit", "a.b.Visit", "a b:Visit", ":Visit", "shop:"])
def test_a_class_is_named_with_its_module(path):
    """H4: a path that can never match is refused."""
    with pytest.raises(ValueError, match="module:qualified name"):
        migrations.register(path, dict)


def test_only_what_can_be_called_can_be_registered():
    """H4: a successor is a class or a function."""
    with pytest.raises(TypeError, match="class or a function"):
        migrations.register("shop:Visit", "shop2:Visit")  # type: ignore[arg-type]
