"""The server hands out the page beside the API (issue 19, item 4)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.server.rest.rig import Handle, a_view, serving

from penstock.base.errors import MissingPathError
from penstock.server.rest import application as page_files

TOKENS = {"penstock.rest.token": "operators", "penstock.rest.reader-token": "readers"}


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<title>Penstock</title>")
    (tmp_path / "assets" / "index-abc.js").write_text("let a = 1")
    (tmp_path / "secret").write_text("no asset")
    monkeypatch.setattr(page_files, "files", lambda: tmp_path)
    return tmp_path


@pytest.mark.usefixtures("built")
def test_the_page_is_at_the_root_and_is_never_kept() -> None:
    with serving(Handle(a_view())) as client:
        answer = client.get("/")
    assert (answer.code, answer.body) == (200, b"<title>Penstock</title>")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.usefixtures("built")
def test_its_assets_are_kept_by_browsers() -> None:
    with serving(Handle(a_view())) as client:
        answer = client.get("/assets/index-abc.js")
    assert (answer.code, answer.body) == (200, b"let a = 1")
    assert "immutable" in answer.headers["cache-control"]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("path", ["/assets/other.js", "/assets/..%2fsecret", "/assets/%2e%2e/secret", "/assets/"])
def test_nothing_else_is_handed_out(path: str) -> None:
    with serving(Handle(a_view())) as client:
        answer = client.get(path)
    assert answer.code == 404
    assert b"no asset" not in answer.body


@pytest.mark.usefixtures("built")
def test_it_needs_no_token_which_it_asks_for_itself() -> None:
    with serving(Handle(a_view()), configuration=TOKENS) as client:
        assert client.get("/").code == 200
        assert client.get("/assets/index-abc.js").code == 200
        assert client.get("/jobs/overview").code == 401


@pytest.mark.usefixtures("built")
def test_another_name_of_the_server_gets_no_page() -> None:
    with serving(Handle(a_view())) as client:
        assert client.get("/", {"host": "evil.example"}).code == 403


def test_an_installation_without_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise MissingPathError("The page is not built.")

    monkeypatch.setattr(page_files, "files", missing)
    with serving(Handle(a_view())) as client:
        answer = client.get("/")
    assert answer.code == 404
    assert answer.json == {"errors": ["The page is not built."]}
