"""Sphinx extension: warns where a message of tnplan names a page or a heading that the site does not have."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

from tnplan.common.errors import DOCS, PAGES
from tnplan.compress.format.errors import PAGE

_log = logging.getLogger(__name__)


def missing(site: Path) -> list[str]:
    """The addresses in messages that lead nowhere in a site of HTML pages."""
    wrong = []
    for address in [*PAGES.values(), PAGE.removeprefix(DOCS)]:
        name, _, heading = address.partition("#")
        page = site / Path(name).with_suffix(".html")
        if not page.exists() or (heading and f'id="{heading}"' not in page.read_text(encoding="utf-8")):
            wrong.append(address)
    return wrong


def check_addresses(app: Sphinx, error: Exception | None) -> None:
    """Warn of each address that leads nowhere; a build with -W stops there."""
    if error is None and app.builder.name == "html":
        for address in missing(Path(app.outdir)):
            _log.warning("a message names %s, which is not in the site", address)


def setup(app: Sphinx) -> dict[str, bool | str]:
    """Register the check."""
    app.connect("build-finished", check_addresses)
    return {"version": "1", "parallel_read_safe": True}
