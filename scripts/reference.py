"""Builds the API reference from the docstrings of public modules, as HTML; whatever is amiss with them is an error.

scripts/run python scripts/reference.py build/reference
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from inspect import Signature
from pathlib import Path
from pkgutil import ModuleInfo, walk_packages
from typing import Any, get_type_hints

import pdoc
from markupsafe import Markup
from pdoc.doc import Class, Doc, Function, Module
from pdoc.render_helpers import format_signature

#: Packages whose modules are all public, but for those in INTERNAL.
PACKAGES = ["penstock.cep", "penstock.common", "penstock.connectors", "penstock.datastream"]
#: Modules that stand for what is behind them.
MODULES = [
    "penstock.base.metrics",
    "penstock.base.options",
    "penstock.runtime.connector",
    "penstock.gelly",
    "penstock.gelly.asm",
    "penstock.gelly.bipartite",
    "penstock.gelly.columnar",
    "penstock.gelly.generator",
    "penstock.gelly.gsa",
    "penstock.gelly.library",
    "penstock.gelly.pregel",
    "penstock.gelly.spargel",
    "penstock.metrics",
    "penstock.state.migrations",
    "penstock.state_processor",
    "penstock.testing",
    "penstock.testing.connectors",
]
#: Parts of public packages that users meet under other names.
INTERNAL = {
    "penstock.cep.drawing",
    "penstock.common.avro_row",
    "penstock.common.csv_row",
    "penstock.common.json_row",
    "penstock.connectors.split_reader",
    "penstock.connectors.cached",
    "penstock.connectors.delta.table",
    "penstock.connectors.file.reader",
    "penstock.connectors.file.filesystem",
    "penstock.connectors.iceberg.committer",
    "penstock.connectors.postgres.cdc.changes",
    "penstock.connectors.postgres.cdc.reader",
    "penstock.connectors.postgres.cdc.replication",
    "penstock.connectors.postgres.cdc.position",
    "penstock.datastream.windowed",
    "penstock.datastream.function",
    "penstock.datastream.connected",
    "penstock.datastream.cache",
    "penstock.datastream.data_frames",
    "penstock.datastream.environment",
    "penstock.datastream.operator_settings",
    "penstock.datastream.stream",
    "penstock.datastream.stream_output",
    "penstock.datastream.iterations",
}


def modules() -> list[str]:
    """The modules of the reference, by name."""
    found = [*PACKAGES, *MODULES]
    for package in PACKAGES:
        found += [module.name for module in _below(package)]
    return sorted(set(found) - INTERNAL)


def _below(package: str) -> Iterator[ModuleInfo]:
    return walk_packages(import_module(package).__path__, f"{package}.")


def build(directory: Path) -> list[str]:
    """Write the reference below a directory; what is amiss, one line each."""
    names = modules()
    there = {module.name for package in PACKAGES for module in _below(package)}
    amiss = [f"{name} is called internal, and is not there" for name in INTERNAL - there]
    _tell_of_internal_classes()
    _resolve_named_tuples(names)
    pdoc.render.env.filters["format_signature"] = _signature
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.render.configure(docformat="google", show_source=False)
        pdoc.pdoc(*_specifications(names), output_directory=directory)
    amiss += [f"warning: {warning.message}" for warning in caught]
    undocumented = {doc.fullname for name in names for doc in _undocumented(Module(import_module(name)))}
    return sorted({*amiss, *(f"{name} has no docstring" for name in undocumented)})


def _resolve_named_tuples(names: list[str]) -> None:
    """Put types in the place of texts in what a NamedTuple makes: pdoc does not find `Any` from there."""
    for name in names:
        for kind in vars(import_module(name)).values():
            if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
                kind.__new__.__annotations__.update(get_type_hints(kind))


def _tell_of_internal_classes() -> None:
    """Let pdoc take what an internal class declares for a part of the class under which users meet it.

    That is the public class closest ahead of it among those that inherit from it. pdoc itself leaves such members out.
    """
    declarations = Class._declarations.func

    def told(doc: Class) -> dict[str, tuple[str, str]]:
        owner, owners = doc.obj, {}
        for cls in doc.obj.__mro__:
            owner = owner if cls.__module__ in INTERNAL else cls
            owners[cls.__module__, cls.__qualname__] = owner
        found = {}
        for name, (module, qualname) in declarations(doc).items():
            owner = owners[module, qualname.removesuffix(f".{name}")]
            found[name] = (owner.__module__, f"{owner.__qualname__}.{name}")
        return found

    # pdoc has bases ahead of the class itself where another base is generic
    Class._bases = property(lambda doc: doc.obj.__mro__)
    Class._declarations = cached_property(told)
    Class._declarations.__set_name__(Class, "_declarations")


def _signature(signature: Signature, colon: bool) -> Markup:
    """The signature as HTML. What internal classes leave open, which streams they give, users know."""
    open_type = Markup('<span class="o">~</span><span class="n">StreamT</span>')
    known = Markup('<span class="n">penstock</span><span class="o">.</span><span class="n">datastream</span>')
    known += Markup('<span class="o">.</span><span class="n">DataStream</span>')
    return format_signature(signature, colon).replace(open_type, known)


def _specifications(names: list[str]) -> list[str]:
    """What pdoc has to be told: modules below a package without `__all__` come along by themselves."""
    open_packages = [name for name in names if not hasattr(import_module(name), "__all__")]
    asked_for = [name for name in names if not any(name.startswith(f"{package}.") for package in open_packages)]
    return asked_for + [f"!{name}" for name in INTERNAL]


def _undocumented(doc: Doc[Any]) -> Iterator[Doc[Any]]:
    """Public classes, functions and methods of Penstock without docstring."""
    if not doc.docstring and not isinstance(doc, pdoc.doc.Variable):
        yield doc
    if isinstance(doc, Module | Class):
        for member in doc.members.values():
            is_public = not member.name.startswith("_") and isinstance(member, Class | Function)
            if is_public and member.taken_from[0].startswith("penstock."):
                yield from _undocumented(member)


def main() -> int:
    """Build, and say what is amiss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where the pages go")
    directory: Path = parser.parse_args().directory
    amiss = build(directory)
    for line in amiss:
        print(line, file=sys.stderr)
    if not amiss:
        print(f"{directory / 'index.html'}: {len(modules())} modules")
    return 1 if amiss else 0


if __name__ == "__main__":
    sys.exit(main())
