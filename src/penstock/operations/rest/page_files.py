"""Serves the web page: `index.html` at `/`, and its assets."""

from __future__ import annotations

from typing import Final

from starlette.responses import FileResponse

from penstock.base.errors import MissingPathError
from penstock.operations.page import files
from penstock.operations.rest.calls.errors import RestError
from penstock.operations.rest.policies import PAGE_POLICY

_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "content-security-policy": PAGE_POLICY,
}


def page_file(asset: str | None) -> FileResponse:
    """Return the page, or one of its assets by name. Asset names change with their content, so browsers cache them.

    Raises:
        RestError: 404 if the file does not exist, or this installation has no page.
    """
    try:
        root = files()
    except MissingPathError as error:
        raise RestError(404, str(error)) from error
    if asset is None:
        return FileResponse(root / "index.html", headers={**_HEADERS, "cache-control": "no-store"})
    known = {path.name: path for path in (root / "assets").iterdir()}
    if asset not in known:
        raise RestError(404, f"Unable to load requested file /assets/{asset[:200]}.")
    return FileResponse(known[asset], headers={**_HEADERS, "cache-control": "public, max-age=31536000, immutable"})
