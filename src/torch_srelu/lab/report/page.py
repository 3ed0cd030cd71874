"""Puts the report together: text, tables, figures, plotly.js and the page's own script, one file.

Whatever comes from a record - names of folders, layers, rivals - is text: escaped in HTML, in
figures and in the embedded JSON. The page's policy lets the browser run its three own scripts and
load nothing, so that even a slip here could not execute anything.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ... import __version__
from ..analysis.comparison import Comparison
from . import explorer_data, sections


def render(comparisons: Sequence[Comparison]) -> str:
    """The whole page for one or more comparisons.

    Args:
        comparisons: At least one, as `torch_srelu.lab.analysis.comparison.compare` makes them.
    """
    drawn: dict[str, go.Figure] = {}
    parts = [
        sections.comparison(c, place, drawn, alone=len(comparisons) == 1)
        for place, c in enumerate(comparisons)
    ]
    explorer = explorer_data.explorer(sections.named_runs(comparisons))
    if explorer:
        parts.append(sections.explorer())
    parts.append(sections.provenance(comparisons))
    content = {
        "figures": {name: json.loads(str(figure.to_json())) for name, figure in drawn.items()},
        "learned": explorer,
    }
    return _fill(
        title=sections.title(comparisons),
        subtitle=sections.subtitle(comparisons),
        sections="\n".join(parts),
        content=content,
    )


def _fill(*, title: str, subtitle: str, sections: str, content: Any) -> str:
    scripts = {"plotly": get_plotlyjs(), "js": _asset("page.js")}
    return Template(_asset("page.html")).substitute(
        scripts,
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        version=__version__,
        css=_asset("page.css"),
        sections=sections,
        content=_embedded(content),
        script_hashes=" ".join(map(_hash, scripts.values())),
    )


def _asset(name: str) -> str:
    return resources.files("torch_srelu.lab.report").joinpath(name).read_text(encoding="utf-8")


def _embedded(content: Any) -> str:
    """JSON that may stand inside a script element: no "<" in it, so that nothing can end it."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
