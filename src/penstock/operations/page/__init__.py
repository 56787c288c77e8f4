"""The page that a browser shows: files that a server hands out under `/`, beside Flink's REST API.

The sources are in `web/`; `make page` builds them, and a wheel is built with them. The page asks only for what Flink's
REST API has, of the server that it came from, so a server has nothing more to do than to hand out the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.base.errors import MissingPathError

_BUILT: Final = Path(__file__).parent / "dist"


def files() -> Path:
    """The directory with `index.html`, which belongs at `/`, and `assets/`.

    The names of files in `assets/` change with their content, so browsers may keep them for ever. `index.html` may be
    kept by nobody.

    Raises:
        MissingPathError: when this installation was made without the page.
    """
    if not (_BUILT / "index.html").is_file():
        raise MissingPathError(
            f"The page is not built: there is no {_BUILT / 'index.html'}. In a checkout, run `make page`, which needs"
            " Node.js 20 or newer; a wheel from the package index has it."
        )
    return _BUILT
