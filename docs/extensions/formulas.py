"""Sphinx extension: formulas as SVG within the page, drawn by matplotlib, so that none needs the internet.

matplotlib's mathtext knows a part of TeX: fractions are `\\frac`, and there are no environments. What it does
not know fails the build.
"""

from __future__ import annotations

import re
from html import escape
from io import StringIO
from typing import Any
from zlib import crc32

from docutils import nodes
from matplotlib import rc_context
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser, math_to_image
from sphinx.application import Sphinx

POINTS = 12.0
"""The size at which formulas are drawn; a page shows them in proportion to its text."""
_parser = MathTextParser("path")


def svg_of(formula: str) -> str:
    """A formula as an SVG element, with the colour and size of the text around it and its TeX as title."""
    text = f"${formula.strip()}$"
    font = FontProperties(size=POINTS, math_fontfamily="cm")
    # dpi 72: a point is a unit. The depth is what lies below the line of the text.
    _, _, depth, *_ = _parser.parse(text, dpi=72, prop=font)
    drawn = StringIO()
    with rc_context({"svg.hashsalt": "tnplan", "svg.fonttype": "path"}):
        math_to_image(text, drawn, prop=font, dpi=72, format="svg")
    body = drawn.getvalue()
    body = body[body.index("<svg") :].replace("fill: #ffffff", "fill: none")
    # Definitions of glyphs have names, which must differ between the formulas of a page.
    own = f"f{crc32(formula.encode()):08x}-"
    body = re.sub(r'(?<=id=")([^"]+)', rf"{own}\1", body)
    body = re.sub(r'(?<=href="#)([^"]+)', rf"{own}\1", body)
    title = f"<title>{escape(formula.strip())}</title>"
    body = re.sub(r"<metadata>.*?</metadata>", lambda _: title, body, flags=re.DOTALL)
    width, height = (float(x) / POINTS for x in re.findall(r'(?:width|height)="([\d.]+)pt"', body)[:2])
    size = f'style="fill: currentColor; width: {width:.3f}em; height: {height:.3f}em; vertical-align: '
    f'{-depth / POINTS:.3f}em"'
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', size, body, count=1)


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(svg_of(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math" style="text-align: center">{svg_of(node.astext())}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; conf.py chooses it by `html_math_renderer`."""
    app.add_html_math_renderer("formulas", (_inline, None), (_block, None))
    return {"version": "1", "parallel_read_safe": True}
