"""A hook of MkDocs: the site tells its version, and the folder of all versions knows which there are.

A version is a folder, with `versions.json` beside it, which the selector in the header reads. The page at the top leads
to the newest version. To publish one more version, build it into the folder of the others: `scripts/docs FOLDER`.
"""

from __future__ import annotations

import gc
import json
import re
import tomllib
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).parents[2]


def version() -> str:
    """The version of the package."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def sort_key(name: str) -> tuple[list[int], bool, str]:
    """Orders versions: by number, those still in development ahead of the release."""
    number = re.match(r"\d+(\.\d+)*", name)
    is_release = number is not None and number[0] == name
    return ([int(part) for part in number[0].split(".")] if number else [], is_release, name)


def write_versions(folder: Path) -> list[str]:
    """Write what a folder of versions needs besides them; the versions, newest first."""
    names = [path.parent.name for path in folder.glob("*/index.html")]
    names.sort(key=sort_key, reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in names]
    (folder / "versions.json").write_text(json.dumps(listed, indent=2) + "\n")
    newest = names[0]
    text = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Penstock</title>'
    text += (
        f'<meta http-equiv="refresh" content="0; url={newest}/index.html"><a href="{newest}/index.html">{newest}</a>'
    )
    (folder / "index.html").write_text(f"{text}</html>\n")
    return names


def on_startup(command: str, dirty: bool) -> None:
    """Spare a build that ends within a minute the search for garbage, which takes three seconds."""
    gc.disable()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version in the footer of every page."""
    config.copyright = f"Penstock {version()}"
    return config


def on_post_build(config: MkDocsConfig) -> None:
    """Tell the folder of all versions about this one."""
    write_versions(Path(config.site_dir).parent)


if __name__ == "__main__":
    print(version())
