"""Builds the API reference from the docstrings of public modules, as HTML; whatever is amiss with them is an error.

scripts/run python scripts/reference.py build/reference
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import ModuleInfo, walk_packages
from types import ModuleType
from typing import Any

import pdoc
from pdoc.doc import Class, Doc, Function, Module

#: Packages whose modules are all public, but for those in INTERNAL.
PACKAGES = ["penstock.common", "penstock.connectors", "penstock.datastream"]
#: Modules that stand for what is behind them.
MODULES = [
    "penstock.base.metrics",
    "penstock.base.options",
    "penstock.core.connector",
    "penstock.metrics",
    "penstock.state.migrations",
    "penstock.state_processor",
    "penstock.testing",
]
#: Parts of public packages that users meet under other names.
INTERNAL = {
    "penstock.common.avro_row",
    "penstock.common.csv_row",
    "penstock.common.json_row",
    "penstock.connectors.cached",
    "penstock.connectors.file.bulk_reader",
    "penstock.connectors.file.committer",
    "penstock.connectors.file.enumerator",
    "penstock.connectors.file.filesystem",
    "penstock.connectors.file.line_reader",
    "penstock.connectors.file.part_names",
    "penstock.connectors.file.reader",
    "penstock.connectors.file.split",
    "penstock.connectors.file.writer",
    "penstock.connectors.split_queue",
    "penstock.connectors.split_reader",
    "penstock.datastream.async_functions",
    "penstock.datastream.data_frames",
    "penstock.datastream.dependencies",
    "penstock.datastream.function",
    "penstock.datastream.global_sink",
    "penstock.datastream.operator_settings",
    "penstock.datastream.projected_type",
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
    for name in names:
        _resolve(import_module(name))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.render.configure(docformat="google", show_source=False)
        pdoc.pdoc(*_specifications(names), output_directory=directory)
    amiss += [f"warning: {warning.message}" for warning in caught]
    undocumented = {doc.fullname for name in names for doc in _undocumented(Module(import_module(name)))}
    return sorted({*amiss, *(f"{name} has no docstring" for name in undocumented)})


def _resolve(module: ModuleType) -> None:
    """Put in place what a module finds only when it is asked for; pdoc looks at what is there."""
    for name in getattr(module, "__all__", ()):
        setattr(module, name, getattr(module, name))


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
