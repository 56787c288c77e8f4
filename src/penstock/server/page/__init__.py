"""The web page: files that a server serves under `/`, next to Flink's REST API.

The sources are in `web/`; `make page` builds them, and wheels include them. The page uses only Flink's REST API, of the
server that it came from, so a server only has to serve the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.base.errors import MissingPathError

_BUILT: Final = Path(__file__).parent / "dist"


def files() -> Path:
    """Return the directory with `index.html`, which belongs at `/`, and `assets/`.

    The names of files in `assets/` change with their content, so browsers may cache them indefinitely. `index.html`
    must not be cached.

    Raises:
        MissingPathError: if this installation was built without the page.
    """
    if not (_BUILT / "index.html").is_file():
        raise MissingPathError(
            f"The page is not built: there is no {_BUILT / 'index.html'}. In a checkout, run `make page`, which needs"
            " Node.js 20 or newer; a wheel from the package index has it."
        )
    return _BUILT
