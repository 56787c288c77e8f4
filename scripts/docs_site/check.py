"""Checks the built site without a network: `check.py build/site/0.1.0` prints every link that leads nowhere.

Each relative link leads to a file of the site, and its anchor to a place there. No page loads a script, a style sheet,
a font or a picture from another host.
"""

from __future__ import annotations

import argparse
import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

TAG = re.compile(r"<[a-zA-Z][^>]*>")
ATTRIBUTE = re.compile(r"""\s(href|src|id|name|rel)=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
CODE = re.compile(r"<(script|style)\b([^>]*)>.*?</\1>", re.DOTALL)
#: What another host would serve while a page loads.
LOADED_BY_STYLES = re.compile(r"""(?:url\(|@import )\s*["']?((?:https?:)?//[^"')\s]+)""")


class Site:
    """The pages of a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._pages: dict[Path, tuple[list[tuple[str, str]], set[str]]] = {}

    def faults(self) -> Iterator[str]:
        """All links and loads that fail without a network, one line each."""
        for page in sorted(self.folder.rglob("*.html")):
            name = page.relative_to(self.folder)
            yield from (f"{name}: {fault}" for fault in self._faults_of(page))
        for style in sorted(self.folder.rglob("*.css")):
            for url in LOADED_BY_STYLES.findall(style.read_text(encoding="utf-8")):
                yield f"{style.relative_to(self.folder)}: loads {url}"

    def _faults_of(self, page: Path) -> Iterator[str]:
        for kind, url in self._read(page)[0]:
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") or (parts.netloc and not parts.scheme):
                if kind != "link":
                    yield f"loads {url}"
            elif not parts.scheme:
                yield from self._missing(page, parts.path, unquote(parts.fragment), url)

    def _missing(self, page: Path, path: str, anchor: str, url: str) -> Iterator[str]:
        target = page
        if path:
            # A path from the top is one of the page for missing pages, which servers show anywhere.
            start = self.folder if path.startswith("/") else page.parent
            target = (start / unquote(path).lstrip("/")).resolve()
        if target.is_dir():
            target /= "index.html"
        if not target.is_file():
            yield f"{url} is missing"
        elif anchor and target.suffix == ".html" and anchor not in self._read(target)[1]:
            yield f"{url} has no such anchor"

    def _read(self, page: Path) -> tuple[list[tuple[str, str]], set[str]]:
        """The links of a page, with what they are for, and its anchors."""
        if page not in self._pages:
            self._pages[page] = read(page.read_text(encoding="utf-8"))
        return self._pages[page]


def read(text: str) -> tuple[list[tuple[str, str]], set[str]]:
    """The links of an HTML text, with what they are for ("link", or "load" for what a browser fetches), and anchors."""
    links: list[tuple[str, str]] = []
    anchors: set[str] = set()
    for tag in TAG.findall(CODE.sub(r"<\1\2>", text)):
        attributes = {name: html.unescape(a or b or c) for name, a, b, c in ATTRIBUTE.findall(tag)}
        if "src" in attributes:
            links.append(("load", attributes["src"]))
        if "href" in attributes:
            is_loaded = tag.startswith("<link") and "stylesheet" in attributes.get("rel", "")
            links.append(("load" if is_loaded else "link", attributes["href"]))
        anchors.update(attributes[name] for name in ("id", "name") if name in attributes)
    return links, anchors


def main() -> int:
    """Check, and say what is amiss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of a built version")
    folder: Path = parser.parse_args().folder
    pages = len(list(folder.rglob("*.html")))
    if not pages:
        print(f"{folder} has no pages", file=sys.stderr)
        return 1
    faults = list(Site(folder).faults())
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print(f"{folder / 'index.html'}: {pages} pages, every link leads somewhere")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
