"""What `make docs-site` has MkDocs do to pages: README.md is the first one, and links out of docs/ become plain text.

Files of the checkout that are no pages have no place on a site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Put the README among the pages."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Take the links out of a page that lead out of docs/."""
    folder = (Path(config.docs_dir) / page.file.src_uri).parent

    def plain(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if page.file.src_uri == "index.md" and not target.exists() and (ROOT / link[2]).exists():
            return link[1]
        if link[2].endswith("README.md") and target == ROOT / "README.md":
            return f"[{link[1]}]({'../' * page.file.src_uri.count('/')}index.md{link[3] or ''})"
        return link[0] if target.is_relative_to(Path(config.docs_dir).resolve()) else link[1]

    return _LINK.sub(plain, markdown)
