"""The documentation site: it is built in strict mode, its links hold, and it needs no network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from playwright.sync_api import expect
from tests.server.page.browser import NoBrowserError, open_browser, patient

# Beside other tests of a fresh clone it takes minutes.
pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[1]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PAGE = '<html><head>{head}</head><body><h1 id="top">A</h1>{body}</body></html>'


def build(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `scripts/docs`."""
    if not (ROOT / "build/docs-environment/.made").exists():
        pytest.skip("the packages of the site are not there: run scripts/docs --install")
    command = [str(ROOT / "scripts/docs"), str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of versions that `scripts/docs` has built this one into."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "0.0.9").mkdir()
    (folder / "0.0.9" / "index.html").write_text("an earlier version")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def site(folder: Path) -> Path:
    """The site of this version."""
    return folder / VERSION


CONFIGURATION = """
INHERIT: {root}/mkdocs.yml
docs_dir: {docs}
theme: {{custom_dir: {root}/scripts/docs_site/theme}}
hooks: []
plugins: [search]
nav: [index.md]
"""


def checker() -> ModuleType:
    """The check of links."""
    spec = spec_from_file_location("check_of_the_site", ROOT / "scripts/docs_site/check.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def faults(folder: Path, head: str = "", body: str = "") -> list[str]:
    """What the check finds in a site of a page and a style sheet."""
    (folder / "index.html").write_text(PAGE.format(head=head, body=body))
    (folder / "other.html").write_text(PAGE.format(head="", body=""))
    return list(checker().Site(folder).faults())


@pytest.mark.parametrize(
    "body",
    [
        '<a href="other.html#top">x</a>',
        '<a href="#top">x</a>',
        '<a href="https://example.org/x">x</a>',
        '<a href="mailto:ann@example.org">x</a>',
        "<pre>&lt;a href=&quot;gone.html&quot;&gt;</pre>",
        "<script>const text = '<a href=\"gone.html\">'</script>",
    ],
)
def test_the_check_passes_what_holds(body: str, tmp_path: Path) -> None:
    assert not faults(tmp_path, body=body)


@pytest.mark.parametrize(
    ("head", "body", "fault"),
    [
        ("", '<a href="gone.html">x</a>', "index.html: gone.html is missing"),
        ("", '<a href="#gone">x</a>', "index.html: #gone has no such anchor"),
        ("", '<a href="other.html#gone">x</a>', "index.html: other.html#gone has no such anchor"),
        ("", '<img src="gone.png">', "index.html: gone.png is missing"),
        ("", "<script src='https://example.org/x.js'></script>", "index.html: loads https://example.org/x.js"),
        ("<link rel=stylesheet href=//example.org/x.css>", "", "index.html: loads //example.org/x.css"),
    ],
)
def test_the_check_sees_a_fault(head: str, body: str, fault: str, tmp_path: Path) -> None:
    assert faults(tmp_path, head, body) == [fault]


def test_the_check_sees_fonts_of_another_host(tmp_path: Path) -> None:
    (tmp_path / "site.css").write_text("@font-face { src: url(https://example.org/x.woff2) }")
    assert faults(tmp_path) == ["site.css: loads https://example.org/x.woff2"]


@pytest.mark.parametrize(
    ("page", "other", "warning"),
    [
        ("[x](gone.md)", None, "the target is not found"),
        ("[x](#gone)", None, "there is no such anchor"),
        ("", "# B", 'not included in the "nav"'),
        ("", None, None),
    ],
)
def test_the_build_is_strict(page: str, other: str | None, warning: str | None, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# A\n\n{page}\n")
    if other:
        (docs / "other.md").write_text(other)
    configuration = tmp_path / "mkdocs.yml"
    configuration.write_text(CONFIGURATION.format(root=ROOT, docs=docs))
    done = build(tmp_path / "site", "--config-file", str(configuration))
    assert (done.returncode == 0) == (warning is None), done.stderr
    assert (warning or "") in done.stderr


def test_every_page_is_there(site: Path) -> None:
    """The build is strict: a page that mkdocs.yml does not list, or a link without a target, fails it."""
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"} | {"index"}
    assert pages <= {path.stem for path in site.glob("*.html")}
    assert "Contributing" in (site / "repository/contributing.html").read_text()


def test_links_to_files_of_the_repository_lead_to_their_text(site: Path) -> None:
    page = (site / "architecture.html").read_text()
    assert 'href="source/pyproject.toml.html"' in page
    assert 'href="source/src/penstock/cep/index.html"' in page
    assert "importlinter" in (site / "source/pyproject.toml.html").read_text()
    assert 'href="pattern.py.html"' in (site / "source/src/penstock/cep/index.html").read_text()


def test_the_reference_has_public_names_only(site: Path) -> None:
    """A class has one page; what it inherits from internal classes is there, and internal modules are not."""
    text = (site / "api/penstock.datastream.data_stream.html").read_text()
    assert 'id="penstock.datastream.data_stream.DataStream.map"' in text
    assert "state in savepoints; unique in the job" in re.sub(r"\s+", " ", text), "uid() is inherited"
    assert "DataStream._" not in text
    names = {path.stem for path in (site / "api").glob("*.html")}
    assert {"penstock.common.time", "penstock.table.expressions", "penstock.gelly", "penstock.testing"} <= names
    assert not {name for name in names if name.startswith(("penstock.sql", "penstock.runtime.task"))}
    overview = (site / "api/penstock.datastream.html").read_text()
    assert 'href="penstock.datastream.data_stream.html#penstock.datastream.data_stream.DataStream"' in overview


def test_versions_stand_beside_each_other(folder: Path, site: Path) -> None:
    """The selector lists all versions, the newest first; the page at the top leads to it, and each says its own."""
    listed = json.loads((folder / "versions.json").read_text())
    assert [version["version"] for version in listed] == [VERSION, "0.0.9"]
    assert f"url={VERSION}/index.html" in (folder / "index.html").read_text()
    assert f"Penstock {VERSION}" in (site / "index.html").read_text()


def test_the_search_works_without_a_server_and_a_network(site: Path) -> None:
    """A browser opens the site from its folder, and asks no host for anything."""
    try:
        with open_browser() as browser:
            page = patient(browser.new_page())
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.goto((site / "index.html").as_uri())
            page.locator("input.md-search__input").click()
            page.keyboard.type("watermark")
            results = page.locator("a.md-search-result__link")
            expect(results.first).to_be_visible(timeout=30_000)
            assert results.first.get_attribute("href")
            assert not [url for url in asked if url.startswith("http")]
    except NoBrowserError as error:
        pytest.skip(str(error))
