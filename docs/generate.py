"""Writes the reference pages from the code, and the examples into the pages that show them.

Run it as ``make docs``. The pages of `reference/` that are named in `PAGES` are written whole; in every other page only
the code blocks that name a file under ``examples/docs`` are replaced by what stands in that file, and the figures of
the bench by those in ``bench/figures.json``.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from docs.pages import cli, errors, examples, expressions, figures, http, python, settings, sql, states

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Written by `make docs` from the code: change the code, then run it again. -->\n\n"

# The pages that need no database; `sql.md` is read from a migrated one, and `openapi.json` has no note.
PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings.page,
    "errors.md": errors.page,
    "states.md": states.page,
    "python.md": python.page,
    "cli.md": cli.page,
    "expressions.md": expressions.page,
    "http.md": http.page,
}


async def reference_pages(url: str) -> dict[str, str]:
    """Return the generated pages by file name; ``url`` is a database with the schema of this release."""
    pages = {name: NOTE + page() for name, page in PAGES.items()}
    pages["sql.md"] = NOTE + await sql.page(url)
    pages["openapi.json"] = http.document_text()
    return pages


def pages_with_examples() -> list[Path]:
    """Return the pages that people write, in which only the examples are generated."""
    generated = {*PAGES, "sql.md"}
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if page.parent.name != "reference" or page.name not in generated]


async def _with_database() -> dict[str, str]:
    """Return the pages, read from an embedded PostgreSQL that is started for this and thrown away."""
    from weft.core.settings import Settings
    from weft.db import embedded, migrate

    # In /tmp: the path of a socket must be short. As root the server runs as another user, who has to get in.
    home = Path(tempfile.mkdtemp(prefix="weft-docs-", dir="/tmp"))
    home.chmod(0o755)
    own = Settings(home=home)
    try:
        server = await embedded.ensure_running(own)
        await migrate.upgrade(server.url)
        return await reference_pages(server.url)
    finally:
        await embedded.stop(own, mode="immediate")
        shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    """Write everything that is generated, and say what changed."""
    texts = {ROOT / "docs" / "reference" / name: text for name, text in asyncio.run(_with_database()).items()}
    for page in pages_with_examples():
        texts[page] = figures.refreshed(examples.refreshed(page.read_text(encoding="utf-8"), page))
    changed = [page for page, text in texts.items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    for page in changed:
        page.write_text(texts[page], encoding="utf-8")
        sys.stdout.write(f"wrote {page.relative_to(ROOT)}\n")
    sys.stdout.write(f"{len(texts)} pages, {len(changed)} changed\n")


if __name__ == "__main__":
    main()
