"""Rendering of the report as one HTML file with tables, figures, plotly.js and its own script.

Whatever comes from a record - names of folders, layers, rivals - is escaped in HTML, in figures and
in the embedded JSON. Should that ever fail, the page's content security policy still lets the
browser run the page's three scripts alone, and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from string import Template
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ... import __version__
from ..analysis.comparison import Comparison
from . import explorer_data, sections
from .sections import read_asset


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
    scripts = {"plotly": get_plotlyjs(), "js": read_asset("page.js")}
    return Template(read_asset("page.html")).substitute(
        scripts,
        title=html.escape(sections.title(comparisons)),
        subtitle=html.escape(sections.subtitle(comparisons)),
        version=__version__,
        css=read_asset("page.css"),
        sections="\n".join(parts),
        content=_embedded(content),
        script_hashes=" ".join(map(_hash, scripts.values())),
    )


def _embedded(content: Any) -> str:
    """JSON for a script element: without "<", so that nothing in it can end the element."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
