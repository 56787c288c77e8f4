"""Puts the built page into a wheel: a build hook of Hatchling."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the page of `web/` where it can.

    A wheel that is made without Node.js has no page, and says so while it is built and when somebody asks for the page.
    With PENSTOCK_PAGE=required, as for a release, there is no such wheel.
    """

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or self.target_name != "wheel":
            return
        root = Path(self.root)
        built = root / "src/penstock/server/page/dist/index.html"
        if (root / "web").is_dir():
            subprocess.run([root / "scripts/page", "--if-possible"], check=True)
        if built.is_file():
            build_data["artifacts"].append("/src/penstock/server/page/dist/**")
        elif os.environ.get("PENSTOCK_PAGE") == "required":
            raise RuntimeError("The wheel would lack the page. Build it with Node.js 20 or newer at hand.")
        else:
            self.app.display_warning("This wheel lacks the page, which needs Node.js 20 or newer to be built.")
