"""Rendering of the report as one HTML file with tables, figures, plotly.js and its own script.

Whatever comes from a record - names of folders, layers, rivals - is escaped in HTML, in figures and
in the embedded JSON. Should that ever fail, the page's content security policy still lets the
browser run the page's three scripts alone, and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from string import Template

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from ... import __version__
from ..._text import counted
from ...module import NAMES
from ..analysis import comparison_tables
from ..analysis.comparison import Comparison, places
from ..analysis.learned_parameters import LEARNED_NAMES, LearnedLayer, learned_layers
from ..records.run_record import Record, seconds_of
from ..records.run_status import FINISHED
from . import explorer_data, plots

CURVES = (
    ("train_loss", "training loss", 1),
    ("train_error", "training error, %", 100),
    ("val_error", "validation error, %", 100),
)


def render(comparisons: Sequence[Comparison]) -> str:
    """The whole page for one or more comparisons.

    Args:
        comparisons: At least one, as `torch_srelu.lab.analysis.comparison.compare` makes them.
    """
    drawn: dict[str, go.Figure] = {}
    parts = [
        _comparison(c, place, drawn, alone=len(comparisons) == 1)
        for place, c in enumerate(comparisons)
    ]
    explorer = explorer_data.explorer(_named_runs(comparisons))
    if explorer:
        parts.append(_explorer())
    parts.append(_provenance(comparisons))
    content = {
        "figures": {name: json.loads(str(figure.to_json())) for name, figure in drawn.items()},
        "learned": explorer,
    }
    embedded = json.dumps(content, allow_nan=False, separators=(",", ":"))
    scripts = {"plotly": get_plotlyjs(), "js": _read_asset("page.js")}
    return Template(_read_asset("page.html")).substitute(
        scripts,
        title=escape(_title(comparisons)),
        subtitle=escape(_subtitle(comparisons)),
        version=__version__,
        css=_read_asset("page.css"),
        sections="\n".join(parts),
        content=embedded.replace("<", "\\u003c"),  # so that nothing in it can end its element
        script_hashes=" ".join(map(_hash, scripts.values())),
    )


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _read_asset(name: str) -> str:
    """A file of this package."""
    return resources.files("torch_srelu.lab.report").joinpath(name).read_text(encoding="utf-8")


def _title(comparisons: Sequence[Comparison]) -> str:
    """What the page is about, in one line."""
    first = comparisons[0]
    if len(comparisons) > 1:
        return f"{len(comparisons)} comparisons of activation functions"
    rivals = ", ".join(rival.name for rival in first.rivals)
    return f"{rivals} on {first.protocol['dataset']}"


def _subtitle(comparisons: Sequence[Comparison]) -> str:
    """Network, length, number of runs and machines."""
    records = [record for c in comparisons for record in c.records]
    titles = "; ".join(c.title for c in comparisons)
    return f"{titles}. {counted(len(records), 'run')} on {'; '.join(places(records))}."


def _named_runs(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, Record]]:
    """Every finished run, under the name that the explorer shows."""
    for c in comparisons:
        where = f"{c.title}: " if len(comparisons) > 1 else ""
        for rival in c.rivals:
            for record in rival.finished:
                yield f"{where}{rival.name}, seed {record.run.seed}", record


def _comparison(c: Comparison, place: int, drawn: dict[str, go.Figure], *, alone: bool) -> str:
    """Result, convergence, learned parameters and magnitudes of one comparison.

    Args:
        c: The comparison.
        place: Its index in the page, which makes names of figures unique.
        drawn: Where to put the figures, by the name under which the page's script finds them.
        alone: Whether it is the only one: then the page has its title.
    """
    parts = [] if alone else [f'<h2 class="comparison">{escape(c.title)}</h2>']
    level = "h2" if alone else "h3"

    def section(name: str, lead: str, *content: str) -> None:
        paragraph = [f'<p class="lead">{lead}</p>'] if lead else []
        parts.extend([f"<{level}>{name}</{level}>", *paragraph, *content])

    def plot(kind: str, figure: go.Figure) -> str:
        name = f"{kind}-{place}"
        drawn[name] = figure
        size = f'style="--rivals: {len(c.rivals)}"'
        return f"""<figure class="card" {size}>
<div class="plot {kind}" data-figure="{name}"></div></figure>"""

    errors = plots.errors(c)
    drawn_errors = plot("errors", errors) if errors else ""
    lead = escape(comparison_tables.conclusion(c))
    section("Result", lead, drawn_errors, _errors(c), _differences(c))
    curves = [
        plot(column, figure)
        for column, label, unit in CURVES
        if (figure := plots.convergence(c, column, label, unit))
    ]
    if curves:
        lead = "Mean over seeds; the band reaches from the lowest to the highest seed."
        section("Convergence", lead, f'<div class="pair">{"".join(curves)}</div>')
    if magnitude := plots.magnitude(c):
        lead = "Mean absolute value of what each activation receives, after the last epoch."
        section("Magnitude of inputs by layer", lead, plot("magnitude", magnitude))
    for rival in c.rivals:
        if layers := learned_layers(rival):
            table = _layer_table([*layers.values()])
            section(f"Learned parameters of {escape(rival.name)}", "", table)
    return "\n".join(parts)


def _explorer() -> str:
    """The elements that the page's script fills: one small plot a layer, and the large one."""
    values = "".join(f'<div><dt>{_symbol(n)}</dt><dd id="{n}"></dd></div>' for n in NAMES)
    return Template(_read_asset("explorer.html")).substitute(values=values)


def _provenance(comparisons: Sequence[Comparison]) -> str:
    """Every run with its folder and status, and the protocols, machines and versions."""
    parts = ["<h2>How it was run</h2>"]
    for c in comparisons:
        decisions = [[name, str(value)] for name, value in c.protocol.items()]
        parts.append(_details(f"Protocol: {c.title}", _table(["decision", "value"], decisions)))
    records = [record for c in comparisons for record in c.records]
    runs = _table(["run", "status", "test error %", "seconds"], [*map(_run_row, records)])
    parts.append(_details(counted(len(records), "run"), runs))
    machines: dict[str, str] = {}
    for r in records:
        for e in r.environments:
            versions = ", ".join(f"{k} {v}" for k, v in e.get("versions", {}).items())
            machines.setdefault(f"{e.get('hardware')}; {versions}", r.folder.name)
    rows = [[first, machine] for machine, first in machines.items()]
    parts.append(_details("Machines and versions", _table(["from run", "environment"], rows)))
    return "\n".join(parts)


def _run_row(record: Record) -> list[str]:
    result = record.result or {}
    error = 100 * result["test_error"] if record.status == FINISHED else None
    seconds = seconds_of(result) if result else None
    return [
        record.folder.name,
        record.status,
        comparison_tables.format_number(error),
        comparison_tables.format_number(seconds, ".1f"),
    ]


def _errors(c: Comparison) -> str:
    """The errors' table, each rival with the color of its curves, the lowest mean in bold."""
    table, palette = comparison_tables.errors(c), plots.rival_colors(c)
    lowest = min((r.summary.mean for r in c.rivals if r.summary), default=None)
    rows = []
    for rival, row in zip(c.rivals, table.rows, strict=True):
        name, error, *others = map(escape, row)
        if rival.summary and rival.summary.mean == lowest:
            error = f"<b>{error}</b>"
        swatch = f'<span class="swatch" style="background:{palette[rival.name]}"></span>'
        rows.append([f"{swatch}{name}", error, *others])
    return _card(_table_html([*map(escape, table.headers)], rows), table.note)


def _differences(c: Comparison) -> str:
    return "".join(
        f"<h3>{escape(table.title)}</h3>{_card(_table(table.headers, table.rows), table.note)}"
        for table in comparison_tables.differences(c)
    )


def _layer_table(table: list[LearnedLayer]) -> str:
    head = ["layer", "channels", *map(_symbol, LEARNED_NAMES), "crossed"]
    rows = []
    for row in table:
        values = [
            f'{row.mean[k]:.2f} <span class="spread">± {row.std[k]:.2f}</span>'
            for k in LEARNED_NAMES
        ]
        rows.append([escape(row.name), str(row.channels), *values, f"{100 * row.crossed:.0f} %"])
    note = "Mean ± standard deviation over channels and seeds, after the last epoch."
    note += " Crossed: channels whose t_l lies above t_r."
    return _card(_table_html(head, rows), note)


def _card(table: str, note: str) -> str:
    return f'<div class="card">{table}<p class="note">{escape(note)}</p></div>'


def _details(summary: str, content: str) -> str:
    return f"""<details><summary>{escape(summary)}</summary>
<div class="card">{content}</div></details>"""


def _table(head: list[str], rows: list[list[str]]) -> str:
    return _table_html([escape(h) for h in head], [[escape(cell) for cell in row] for row in rows])


def _table_html(head: list[str], rows: list[list[str]]) -> str:
    titles = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _symbol(name: str) -> str:
    letter, side = name.split("_")
    return f"<i>{letter}</i><sub>{side}</sub>"
