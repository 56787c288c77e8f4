"""PyFlink's names: each one that programs commonly use is there, is no stub, and is exercised by a test or an example.

`pyflink_names.json` lists the public names of PyFlink 2.3's `pyflink.common` and `pyflink.datastream` (Kafka and JDBC
apart) by module: classes, functions, members as `Class.member`; with the parameters of what is called, and null for
the rest. Its names alone are PyFlink's; what they do is said by the tests that use them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import UnsupportedError

ROOT = Path(__file__).parents[2]
NAMES: dict[str, dict[str, list[str] | None]] = json.loads(Path(__file__).with_name("pyflink_names.json").read_text())

#: What there is only as an error that says why, and what to do instead.
NOT_AVAILABLE = {
    ("datastream.stream_execution_environment", "StreamExecutionEnvironment.set_python_requirements"): (
        "workers install no packages; an environment is shipped as an archive"
    ),
}

#: Methods of users' classes whose default says when they are needed.
OVERRIDDEN_WHERE_NEEDED = {"AggregateFunction.merge"}


def resolve(module: str, name: str) -> Any:
    """The object, as a class holds it; a `LookupError` where there is none."""
    found: Any = importlib.import_module(f"penstock.{module}")
    for part in name.split("."):
        owner, found = found, inspect.getattr_static(found, part, None)
        if found is None and not assigns(owner, part):
            raise LookupError(f"penstock.{module} has no {name}")
    return found


def assigns(owner: Any, attribute: str) -> bool:
    """Whether objects of a class have an attribute that the class itself has not."""
    return inspect.isclass(owner) and any(
        attribute in getattr(base, "__annotations__", {}) or f"self.{attribute} " in inspect.getsource(base)
        for base in owner.__mro__[:-1]
        if base.__module__.startswith("penstock")
    )


#: What a function raises that is there for its name only.
STUB_ERRORS = {"NotImplementedError", "UnsupportedError"}


def is_stub(function: Any) -> bool:
    """Whether a function does nothing but raise NotImplementedError, or the error of Penstock's that is one."""
    if not inspect.isfunction(function) or not STUB_ERRORS.intersection(function.__code__.co_names):
        return False
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    body = definition.body[1:] if ast.get_docstring(definition) else definition.body
    return len(body) == 1 and isinstance(body[0], ast.Raise)


def takes(function: Any, parameters: list[str]) -> Iterator[str]:
    """The parameters that a function does not take by name."""
    try:
        own = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of the standard library, in C
        return
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own):
        yield from sorted(set(parameters) - {parameter.name for parameter in own})


@cache
def words_of_tests() -> frozenset[str]:
    """Every word in tests and examples; those of this folder are no tests of behaviour."""
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("examples/**/*.py")]
    return frozenset(
        word
        for path in files
        if path.parent != Path(__file__).parent
        for word in re.findall(r"[A-Za-z_]\w*", path.read_text())
    )


@pytest.mark.parametrize("module", NAMES)
def test_every_name_is_there_and_does_something(module: str) -> None:
    """A1, A2: at PyFlink's place, with PyFlink's parameters, and no stub but those that say why."""
    lacking = []
    for name, parameters in NAMES[module].items():
        try:
            found = resolve(module, name)
        except LookupError:
            lacking.append(f"{name}: missing")
            continue
        function = inspect.unwrap(getattr(found, "__func__", found))
        if is_stub(function) and (module, name) not in NOT_AVAILABLE and name not in OVERRIDDEN_WHERE_NEEDED:
            lacking.append(f"{name}: only raises NotImplementedError")
        if parameters and callable(function) and not name.endswith("__exit__"):
            lacking += [f"{name}: takes no {parameter!r}" for parameter in takes(function, parameters)]
    assert not lacking, f"penstock.{module}:\n" + "\n".join(lacking)


@pytest.mark.parametrize("module", NAMES)
def test_every_name_occurs_in_a_test_or_an_example(module: str) -> None:
    """A1, A2: a name that nothing uses is not known to do what it promises."""
    unused = [
        name
        for name in NAMES[module]
        if (last := name.rpartition(".")[2]) not in words_of_tests() and not last.startswith("__")
    ]
    assert not unused, f"penstock.{module}: no test and no example uses {', '.join(unused)}"


@pytest.mark.parametrize(("module", "name"), NOT_AVAILABLE)
def test_what_is_not_available_says_so(module: str, name: str) -> None:
    """The list of exceptions holds what only raises, and nothing else."""
    assert is_stub(resolve(module, name))


def test_the_check_sees_what_lacks() -> None:
    """It tells a missing name, a stub and a missing parameter apart from what is there."""

    def stub() -> None:
        """Not yet."""
        raise NotImplementedError("later")

    def stub_of_penstock() -> None:
        """Not yet."""
        raise UnsupportedError("later")

    assert is_stub(stub)
    assert is_stub(stub_of_penstock)
    assert not is_stub(resolve)
    assert list(takes(resolve, ["module", "path"])) == ["path"]
    for module, name in (("common.types", "Row.of_sort"), ("common.types", "Rows"), ("common", "Row.as_dict.nothing")):
        with pytest.raises(LookupError):
            resolve(module, name)
    assert resolve("datastream.data_stream", "CachedDataStream").__name__ == "CachedDataStream"
    assert "of_kind" in words_of_tests()
