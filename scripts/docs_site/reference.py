"""A hook of MkDocs: the API reference, a page for each public module, from the source alone.

`PACKAGES` and `MODULES` name what is public. A class has one page: that of the public module that defines it, else of
the first one that exports it; other modules that export it link there. What a class inherits from an internal class
stands with it, as users do not meet the internal one. A public name without a docstring is a warning, and so fails a
strict build.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from griffe import Alias, Class, Function, Module, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocstrings import MkdocstringsPlugin

#: Packages whose modules are all public, but for those in INTERNAL.
PACKAGES = ["penstock.common", "penstock.datastream", "penstock.table", "penstock.cep", "penstock.connectors"]
#: Modules that stand for what is behind them.
MODULES = [
    "penstock.gelly",
    "penstock.gelly.asm",
    "penstock.gelly.bipartite",
    "penstock.gelly.columnar",
    "penstock.gelly.generator",
    "penstock.gelly.gsa",
    "penstock.gelly.library",
    "penstock.gelly.pregel",
    "penstock.gelly.spargel",
    "penstock.state_processor",
    "penstock.testing",
    "penstock.testing.connectors",
    "penstock.metrics",
    "penstock.state.migrations",
    "penstock.base.metrics",
    "penstock.base.options",
    "penstock.runtime.connector",
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
    "penstock.connectors.postgres.cdc.enumerator",
    "penstock.connectors.postgres.cdc.options",
    "penstock.connectors.postgres.cdc.schemas",
    "penstock.connectors.postgres.cdc.table_chunks",
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
    "penstock.table.compiled_plan",
    "penstock.table.environment_catalogs",
    "penstock.table.expression_methods",
    "penstock.table.expression_operators",
    "penstock.table.frame_methods",
    "penstock.table.frames",
    "penstock.table.grouped_tables",
    "penstock.table.plans",
    "penstock.table.python_rows",
    "penstock.table.table_environment",
    "penstock.table.sinks",
    "penstock.table.stream_conversion",
    "penstock.table.stream_methods",
    "penstock.table.table_pipeline",
}
#: The heading under which the navigation has the pages.
HEADING = "API reference"
FOLDER = "api"

log = logging.getLogger("mkdocs.hooks.reference")


@dataclass
class PublicModule:
    """A public module and what its page shows.

    Attributes:
        module: the module.
        own: names that are explained here.
        elsewhere: names that are explained on the page of another module, with that module.
    """

    module: Module
    own: list[str] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return f"{FOLDER}/{self.module.path}.md"


def target_of(member: Object | Alias) -> Object:
    """What a name stands for."""
    return member.final_target if isinstance(member, Alias) else member


def public_names(module: Module) -> list[str]:
    """The public names of a module but its submodules, in their order."""
    if module.exports is not None:
        names = [str(name) for name in module.exports]
        return [name for name in names if name in module.members and not target_of(module[name]).is_module]
    members = module.members.items()
    return [n for n, member in members if not n.startswith("_") and not member.is_alias and not member.is_module]


def public_modules(root: Module) -> dict[str, PublicModule]:
    """The public modules, by name, with their names distributed over them."""
    names = list(MODULES)
    for package in PACKAGES:
        names += [package, *(module.path for module in _below(root[package.removeprefix("penstock.")]))]
    for name in INTERNAL.difference(names):
        log.warning("%s is called internal, and is not there", name)
    found = {n: PublicModule(root[n.removeprefix("penstock.")]) for n in sorted(set(names) - INTERNAL)}
    homes: dict[str, list[tuple[bool, bool, bool, str]]] = {}
    for name, public in found.items():
        for member in public_names(public.module):
            target = target_of(public.module[member])
            is_elsewhere = target.module.path != name
            is_package = public.module.is_init_module
            rank = (is_elsewhere, is_package, not name.startswith("penstock.common"), name)
            homes.setdefault(target.path, []).append(rank)
    for name, public in found.items():
        for member in public_names(public.module):
            home = min(homes[target_of(public.module[member]).path])[-1]
            if home == name:
                public.own.append(member)
            else:
                public.elsewhere[member] = home
    return found


def _below(package: Module) -> Iterator[Module]:
    for module in package.modules.values():
        if not module.is_alias and not module.name.startswith("_"):
            yield module
            yield from _below(module)


def inherited_from_internals(cls: Class, public: set[str]) -> list[str]:
    """Members that a class has from internal classes ahead of the public class closest to it."""
    names: list[str] = []
    for base in cls.mro():
        if base.path in public:
            break
        names += [name for name in base.members if not name.startswith("_") and name not in cls.members]
    return list(dict.fromkeys(names))


def page_of(public: PublicModule, classes: set[str]) -> str:
    """The page of a module, as Markdown with instructions for mkdocstrings."""
    path = public.module.path
    lines = [f"# `{path}`", "", *_instruction(path, show_root_heading=False, show_root_toc_entry=False, members=False)]
    if public.elsewhere:
        lines += ["", "Exported here, explained elsewhere:" if public.own else "Exports:", "", "| name | module |"]
        lines += ["| --- | --- |"]
        for name, home in public.elsewhere.items():
            lines.append(f"| [`{name}`][{home}.{name}] | [`{home}`]({home}.md) |")
        lines.append("")
    for name in public.own:
        options: dict[str, Any] = {}
        target = target_of(public.module[name])
        if isinstance(target, Class):
            options["inherited_members"] = inherited_from_internals(target, classes)
        lines += ["", *_instruction(f"{path}.{name}", **options)]
    return "\n".join([*lines, ""])


def _instruction(path: str, **options: Any) -> list[str]:
    """What makes mkdocstrings write about a name."""
    return [f"::: {path}", f"    options: {json.dumps(options)}"]


def undocumented(public: PublicModule) -> Iterator[str]:
    """Public classes, functions and methods of a module without a docstring of their own or of a base class."""
    for name in public.own:
        target = target_of(public.module[name])
        if isinstance(target, Class | Function) and not target.has_docstring:
            yield target.path
        if not isinstance(target, Class):
            continue
        bases = target.mro()
        for member in list(target.members.values()):
            is_method = isinstance(member, Class | Function) and not member.name.startswith("_")
            alike = [base.members[member.name] for base in bases if member.name in base.members]
            if is_method and not member.has_docstring and not any(one.has_docstring for one in alike):
                yield member.path


def _package(name: str) -> str:
    """The package of a public module: the outermost one that is public."""
    return min((one for one in [*PACKAGES, *MODULES] if name == one or name.startswith(f"{one}.")), key=len)


def navigation(pages: dict[str, PublicModule]) -> list[dict[str, Any]]:
    """The part of the navigation that leads to the pages: a section for each package."""
    sections: dict[str, list[Any]] = {}
    for name, public in pages.items():
        sections.setdefault(_package(name), []).append(public)
    found: list[dict[str, Any]] = []
    for package in sorted(sections, key=[*PACKAGES, *MODULES].index):
        entries = [{one.module.path.removeprefix(f"{package}."): one.uri} for one in sections[package]]
        if len(entries) == 1:
            found.append({package: sections[package][0].uri})
        else:
            found.append({package: [sections[package][0].uri, *entries[1:]]})
    return found


def overview(pages: dict[str, PublicModule]) -> str:
    """The first page of the reference: all public modules."""
    lines = [f"# {HEADING}", "", "These modules are public. What stays as it is between releases is in"]
    lines += ["[compatibility](../compatibility.md).", "", "| module | subject |", "| --- | --- |"]
    order = [*PACKAGES, *MODULES]
    for name, public in sorted(pages.items(), key=lambda page: (order.index(_package(page[0])), page[0])):
        docstring = public.module.docstring
        subject = docstring.value.split("\n\n")[0].replace("\n", " ").replace("|", "\\|") if docstring else ""
        lines.append(f"| [`{name}`]({name}.md) | {subject} |")
    return "\n".join([*lines, ""])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference, and name them in the navigation."""
    plugin = cast("MkdocstringsPlugin", config.plugins["mkdocstrings"])
    handler = plugin.get_handler("python")
    root = cast("Module", handler.collect("penstock", handler.get_options({})))
    pages = public_modules(root)
    classes = {target_of(one.module[name]).path for one in pages.values() for name in one.own}
    for public in pages.values():
        for path in undocumented(public):
            log.warning("%s has no docstring", path)
        files.append(File.generated(config, public.uri, content=page_of(public, classes)))
    files.append(File.generated(config, f"{FOLDER}/index.md", content=overview(pages)))
    for section in _sections(config.nav):
        if HEADING in section:
            section[HEADING] = [section[HEADING], *navigation(pages)]
    return files


def _sections(nav: Any) -> Iterator[dict[str, Any]]:
    for entry in nav if isinstance(nav, list) else ():
        if isinstance(entry, dict):
            yield entry
            for below in list(entry.values()):
                yield from _sections(below)
