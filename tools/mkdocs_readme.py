"""Adds the pages at the top of the checkout to the documentation: README as its first page."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, with links as seen from docs/."""
    for source, target in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        for other, page in PAGES.items():
            text = text.replace(f"]({other})", f"]({page})")
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Point links to files outside docs/ at the pages made of them."""
    return re.sub(r"\]\(\.\./(\w+\.md)\)", lambda match: f"]({PAGES[match[1]]})", markdown)
