"""A hook of MkDocs: the pages of `docs` link to files of the repository, and the site brings these files along.

A linked text file becomes a plain page below `source`, a linked folder a list of its files with their first sentences.
The Markdown files of `PAGES` become pages of the site. So every link of the repository works in the site as well,
without a network, and shows the file as it is in the same version.
"""

from __future__ import annotations

import ast
import html
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = "docs"
SOURCE = "source"
#: Markdown files outside of `docs` that are pages of the site, with their places there.
PAGES = {
    "CONTRIBUTING.md": "repository/contributing.md",
    "CHANGELOG.md": "repository/changelog.md",
    "examples/README.md": "repository/examples.md",
}
SKIPPED = {"__pycache__", "node_modules", "dist"}
#: A link or a picture: what is ahead of its target, the target, its anchor.
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
#: A link to a page of `docs` that shows the name of the file.
NAMED_LINK = re.compile(r"\[([\w-]+\.md)\]\(\1(?=[)#])")
FENCE = re.compile(r"^ *(```|~~~)")
STYLE = """
body { color: #222; background: #fff; font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1100px;
  padding: 1rem 2rem }
a { color: #3f51b5; text-decoration: none }
a:hover { text-decoration: underline }
pre { font: 13px/1.45 ui-monospace, monospace; overflow-x: auto; padding: 1rem; background: #f5f5f5 }
li { margin: .2rem 0 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1e2129 }
  a { color: #9fa8da }
  pre { background: #15171d }
}
"""


def site_uri(path: str) -> str:
    """Where a file or folder of the repository is in the site, as MkDocs names it."""
    if path in PAGES:
        return PAGES[path]
    if path == DOCS or path.startswith(f"{DOCS}/"):
        return posixpath.relpath(path, DOCS)
    if (ROOT / path).is_dir():
        return f"{SOURCE}/{path}/index.html"
    return f"{SOURCE}/{path}.html"


def linked_paths(markdown: str, folder: str) -> Iterator[str]:
    """What a Markdown file in a folder of the repository links to, as paths from the root; missing ones too."""
    for line in _prose(markdown):
        for match in LINK.finditer(line):
            if _is_relative(match[2]):
                yield posixpath.normpath(posixpath.join(folder, match[2]))


def with_links_of_the_site(markdown: str, folder: str, uri: str) -> str:
    """The text of a file in a folder of the repository, which the site has at `uri`, with the links that hold there."""

    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if not _is_relative(match[2]) or not (ROOT / path).exists():
            return match[0]
        return match[1] + posixpath.relpath(site_uri(path), posixpath.dirname(uri) or ".") + match[3]

    prose = set(_prose_numbers(lines := markdown.split("\n")))
    return "\n".join(LINK.sub(replace, line) if number in prose else line for number, line in enumerate(lines))


def with_titles(markdown: str) -> str:
    """A page of `docs` whose links to other pages show their titles where the repository shows the names of files."""
    return NAMED_LINK.sub(lambda match: f"[{title(match[1]) or match[1]}]({match[1]}", markdown)


@cache
def title(name: str) -> str | None:
    """The title of a page of `docs`."""
    page = ROOT / DOCS / name
    heading = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE) if page.exists() else None
    return heading[1] if heading else None


def _is_relative(target: str) -> bool:
    return "://" not in target and not target.startswith(("/", "mailto:"))


def _prose(markdown: str) -> Iterator[str]:
    lines = markdown.split("\n")
    yield from (lines[number] for number in _prose_numbers(lines))


def _prose_numbers(lines: list[str]) -> Iterator[int]:
    """The lines outside of fenced code, by number."""
    is_code = False
    for number, line in enumerate(lines):
        if FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield number


def source_files(paths: Iterable[str]) -> Iterator[str]:
    """The files and folders behind linked paths: a folder comes with everything in it."""
    for path in sorted({path for path in paths if site_uri(path).startswith(f"{SOURCE}/") and (ROOT / path).exists()}):
        yield path
        for at, folders, names in os.walk(ROOT / path):
            folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
            below = PurePosixPath(at).relative_to(ROOT)
            yield from (str(below / name) for name in [*folders, *names] if _is_shown(Path(at) / name))


def _is_shown(path: Path) -> bool:
    return not path.name.startswith(".") and (path.is_dir() or _text(path) is not None)


def _text(path: Path) -> str | None:
    """The text of a file; None for what is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def source_page(path: str) -> str:
    """A file or folder of the repository as an HTML page."""
    uri = site_uri(path)
    home = posixpath.relpath("index.html", posixpath.dirname(uri))
    parts = [f'<title>{html.escape(path)}</title><p><a href="{home}">Penstock</a> · {html.escape(path)}</p>']
    if (ROOT / path).is_dir():
        parts.append("<ul>")
        for child in sorted((ROOT / path).iterdir(), key=lambda child: (child.is_file(), child.name)):
            if child.name in SKIPPED or not _is_shown(child):
                continue
            below = f"{path}/{child.name}"
            link = posixpath.relpath(site_uri(below), posixpath.dirname(uri))
            name = html.escape(child.name) + ("/" if child.is_dir() else "")
            parts.append(f'<li><a href="{link}">{name}</a> {html.escape(_subject(child))}</li>')
        parts.append("</ul>")
    else:
        parts.append(f"<pre>{html.escape(_text(ROOT / path) or 'This file is not text.')}</pre>")
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="robots" content="noindex">'
    return f"{head}<style>{STYLE}</style>{''.join(parts)}</html>\n"


def _subject(path: Path) -> str:
    """The first line of the docstring of a module or package."""
    module = path / "__init__.py" if path.is_dir() else path
    if module.suffix != ".py" or not module.exists():
        return ""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files of the repository to which the pages of `docs` link."""
    markdown = {file.src_uri: file.content_string for file in files.documentation_pages()}
    paths = {path for text in markdown.values() for path in linked_paths(text, DOCS)}
    for path, uri in PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        folder = posixpath.dirname(path)
        paths.update(linked_paths(text, folder))
        files.append(File.generated(config, uri, content=with_links_of_the_site(text, folder, uri)))
    for path in dict.fromkeys(source_files(paths)):
        page = File.generated(config, site_uri(path), content=source_page(path), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page of `docs` lead to the files that the site brings along."""
    if page.file.generated_by is not None:
        return markdown
    page.meta.setdefault("search", {"boost": 2})  # ahead of the API reference
    return with_links_of_the_site(with_titles(markdown), DOCS, page.file.src_uri)
