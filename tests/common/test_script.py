"""The script's classes in another process; here, with a `__main__` that is taken away meanwhile."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from penstock.codecs.cloud import ITEM_BYTES_MAX, ScriptError, as_main, pack_script
from penstock.codecs.pickling import PicklingError, dumps, dumps_all, dumps_named, loads_named

SCRIPT = """
import enum, threading
from dataclasses import dataclass

class Color(enum.Enum):
    RED = 1

@dataclass
class Visit:
    color: Color
    seen = []

    class Page:
        pass

def double(value):
    return 2 * value

lock = threading.Lock()

class Locked:
    def go(self):
        lock.acquire()

large = bytes({large})

class Large:
    def size(self):
        return len(large)

Alias = Visit

def make():
    class Local:
        pass
    return Local
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec(SCRIPT.format(large=ITEM_BYTES_MAX), module.__dict__)
    return module


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, script: ModuleType) -> Iterator[ModuleType]:
    """As in a worker: another program is `__main__`, and the script's is what was packed."""
    packed = pack_script()
    other = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", other)
    with as_main(packed):
        yield sys.modules["__main__"]
    assert sys.modules["__main__"] is other


def test_an_instance_is_of_the_class_that_the_program_refers_to(script: ModuleType, worker: ModuleType) -> None:
    """H4: what plain pickle made in the client is found in the worker; a program by cloudpickle has the same class."""
    visit = pickle.loads(b"c__main__\nVisit\n.")
    assert visit is script.Visit
    program = cloudpickle.dumps(script.Visit)
    assert pickle.loads(program) is visit
    assert pickle.loads(dumps(visit(script.Color.RED))) == script.Visit(worker.Color.RED)
    assert b"cloudpickle" not in dumps(visit(script.Color.RED))


def test_a_class_that_is_there_already_is_left_alone(script: ModuleType, worker: ModuleType) -> None:
    """What the worker's functions have made of it stays."""
    script.Visit.seen = ["by the worker"]
    assert worker.Visit.seen == ["by the worker"]


@pytest.mark.parametrize("name", ["Color.RED", "Visit.Page", "double"])
def test_what_lies_within_a_class_and_functions_are_found(worker: ModuleType, name: str) -> None:
    found: Any = worker
    for part in name.split("."):
        found = getattr(found, part)
    assert pickle.loads(dumps(found)) is not None


@pytest.mark.parametrize(("name", "reason"), [("Locked", "cannot pickle '_thread.lock' object"), ("Large", "1 MiB")])
def test_what_cannot_be_packed_is_told_when_it_is_needed(worker: ModuleType, name: str, reason: str) -> None:
    """B1: with its name, the reason and the remedy."""
    with pytest.raises(ScriptError, match=rf"{name!r} of the script .*{reason}.*move it into a module"):
        pickle.loads(f"c__main__\n{name}\n.".encode())


def test_what_is_not_there_is_an_ordinary_error(worker: ModuleType) -> None:
    assert not hasattr(worker, "__file__")
    with pytest.raises(AttributeError, match="at its top level when the job was submitted"):
        worker.Nowhere  # noqa: B018
    with pytest.raises(PicklingError, match=r"a split of S cannot be unpickled here.*as it was when the job was sub"):
        loads_named(b"c__main__\nNowhere\n.", "a split of S")


def test_a_class_without_a_name_goes_in_full(script: ModuleType, worker: ModuleType) -> None:
    """One that a function made; and one of a notebook that was defined anew since."""
    local = script.make()
    assert type(pickle.loads(dumps(local()))) is local
    assert [type(pickle.loads(data)) for data in dumps_all([1, local()])] == [int, local]


def test_an_empty_script_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", empty := ModuleType("__main__"))
    assert pack_script() == b""
    with as_main(b""):
        assert sys.modules["__main__"] is empty


def test_what_cannot_be_pickled_is_named() -> None:
    """B1: with the classes of what a list holds."""

    @dataclass
    class Part:
        lock: Any

    with pytest.raises(
        PicklingError, match=r"a split of S cannot be pickled: cannot pickle.*Part.*: keep only picklable values"
    ) as told:
        dumps_named([Part(threading.Lock()), 3], "a split of S")
    assert "builtins.int" in str(told.value)
