"""A hook of MkDocs: the diagrams of the pages are drawn by a Mermaid that the site brings along.

`scripts/docs` fetches it where there is npm. Without it a diagram is shown as its text: the theme would ask the network
for Mermaid.
"""

from __future__ import annotations

import posixpath
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

MERMAID = Path(__file__).parents[2] / "build/docs-environment/mermaid.min.js"
URI = "javascripts/mermaid.min.js"
FENCES = "pymdownx.superfences"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave diagrams to be code where nothing draws them."""
    if not MERMAID.exists():
        config.mdx_configs[FENCES] = {}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add Mermaid to the site."""
    if MERMAID.exists():
        files.append(File.generated(config, URI, abs_src_path=str(MERMAID)))
    return files


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let a page with diagrams load Mermaid, and no other."""
    if 'class="mermaid"' not in content:
        return content
    source = posixpath.relpath(URI, posixpath.dirname(page.file.dest_uri) or ".")
    return f'{content}\n<script src="{source}"></script><script>mermaid.initialize({{startOnLoad: false}})</script>\n'
