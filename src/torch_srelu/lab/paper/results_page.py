"""The page of results, and what the README quotes of it: generated from committed records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..analysis.comparison_tables import TextTable, markdown_table
from ..config.recipes import FAITHFUL, LENGTHS
from ..config.rival_recipes import SHORT
from ..records.run_status import DEAD, DIVERGED
from ..util import files
from ..util.package_files import read_text
from ..util.patience import DEAD_AFTER, PATIENCE
from . import difference_tables, fit_tables, pair_tables, paper_tables
from .experiments import BLOCKS, REHEARSAL, with_dependencies
from .published import NOTES, PACKAGE
from .results import PaperResults, results_folder

PAGE, FINDINGS = "docs/results.md", "docs/findings.md"
FIGURE, FUNCTIONS, OVERVIEW = "docs/figure4.svg", "docs/functions.svg", "docs/overview.svg"
INPUTS = "docs/figure3.svg"
CAPTIONS: dict[str, str] = NOTES["captions"]
README, BEGIN, END = "README.md", "<!-- results -->", "<!-- end of results -->"


def render(results: PaperResults, findings: str) -> str:
    """The whole page as Markdown, with what was found in words."""
    from .figures import record_figures  # late: figures are slow to import

    learned = record_figures.learned_records(results)
    inputs = record_figures.google_net(results)
    tables = [t for n in paper_tables.NAMES for t in paper_tables.make_tables(n, results)]
    fits = _markdown(fit_tables.make_tables(results))
    return read_text(PACKAGE, "results_page.md").format(
        overview=_picture("overview", Path(OVERVIEW).name) if learned else "",
        findings=findings,
        differences=headline(results),
        short_epochs=LENGTHS["short"]["cifar10"],
        published_epochs=LENGTHS["published"]["cifar10"],
        cut_epochs=SHORT,
        ema=FAITHFUL["ema"],
        dead_after=DEAD_AFTER,
        patience=PATIENCE,
        tables=_markdown(tables),
        ablations=_markdown(pair_tables.make_tables(results)),
        fits=f"## How they fit, and what is inside\n\n{fits}\n" if fits else "",
        functions=f"## What was learned\n\n{_picture('functions', Path(FUNCTIONS).name)}"
        if learned
        else "",
        figure3=f"## Figure 3\n\n{_picture('magnitudes', Path(INPUTS).name)}" if inputs else "",
        convergence=CAPTIONS["convergence"],
        figure4_file=Path(FIGURE).name,
        runs=markdown_table(_runs(results)),
        places=_places(results),
    )


def _markdown(tables: Iterable[TextTable]) -> str:
    return "\n".join(map(markdown_table, tables))


def _picture(name: str, file: str) -> str:
    caption, more = CAPTIONS[name], CAPTIONS["channels"] if name == "functions" else ""
    return f"![{caption}]({file})\n\n{caption}{more}.\n\n"


def headline(results: PaperResults) -> str:
    """SReLU against its rivals as Markdown; a sentence if nothing was run."""
    made = _markdown(difference_tables.make_tables(results))
    return made or "Not run yet: `srelu paper run headline`.\n"


def quoted(results: PaperResults) -> str:
    """What the README has between its marks."""
    text = _markdown(difference_tables.make_main_table(results))
    text = _picture("overview", OVERVIEW) + text if text else headline(results)
    return f"{BEGIN}\n\n{text}\n{END}"


def write(results: PaperResults, folder: Path | None = None) -> Iterator[Path]:
    """Writes page, figures and the README's part of the project that the records belong to."""
    from .figures import record_figures
    from .figures.figure_list import draw

    root = (folder or results_folder()).resolve().parent
    readme = root / README
    before = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    head, begin, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end and (root / PAGE).parent.is_dir()):
        raise ValueError(
            f"{root} is not a checkout of this project: {README} with the marks {BEGIN} and {END} "
            "and the folder docs were expected; name its results with --results"
        )
    findings = (root / FINDINGS).read_text(encoding="utf-8")
    made = {
        root / PAGE: render(results, findings).encode(),
        root / FIGURE: draw("figure4", "svg", results),
        readme: f"{head}{quoted(results)}{tail}".encode(),
    }
    if record_figures.learned_records(results):
        made[root / FUNCTIONS] = draw("functions", "svg", results)
        made[root / OVERVIEW] = draw("overview", "svg", results)
    if record_figures.google_net(results):
        made[root / INPUTS] = draw("figure3", "svg", results)
    for path, data in made.items():
        files.write(path, data)
        yield path


def _runs(results: PaperResults) -> TextTable:
    rows = []
    for name, (words, experiments) in BLOCKS.items():
        if name == REHEARSAL:
            continue
        found = results.records(with_dependencies(experiments))
        statuses = Counter(r.result["status"] for r in found if r.result)
        done, missing = len(found), len(results.missing(experiments)) + results.waiting(experiments)
        runs = f"{done} of {done + missing}" if missing else str(done)
        hours = f"{results.device_seconds(experiments) / 3600:.2f}"
        rows.append([name, words, runs, str(statuses[DEAD]), str(statuses[DIVERGED]), hours])
    headers = ["block", "what", "runs", "dead", "diverged", "device hours"]
    spent = sorted(results.device_hours().items(), key=lambda item: -item[1])
    together = "; ".join(f"{hours:.2f} of one {where}" for where, hours in spent) or "none"
    note = NOTES["blocks"].format(together=together)
    return TextTable("Blocks of runs", headers, rows, note)


def _places(results: PaperResults) -> str:
    places = results.places()
    return f"Trained on {'; '.join(places)}." if places else "Nothing was trained yet."
