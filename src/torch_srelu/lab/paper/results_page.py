"""The page of results, and what the README quotes of it: generated from committed records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..analysis.tables import Grid, grid_markdown
from ..config.recipes import FAITHFUL, LENGTHS
from ..config.rival_recipes import SHORT
from ..records.run_status import DEAD, DEAD_AFTER, DIVERGED, PATIENCE
from ..util import files
from . import fit_tables, paper_tables
from .comparison_tables import ablation_tables, difference_tables, main_difference_table
from .experiments import BLOCKS, REHEARSAL, with_dependencies
from .results import PaperResults, results_folder

PAGE, FINDINGS = "docs/results.md", "docs/findings.md"
FIGURE, FUNCTIONS, OVERVIEW = "docs/figure4.svg", "docs/functions.svg", "docs/overview.svg"
INPUTS = "docs/figure3.svg"
SHOWN = "Test errors of NIN, the paper's and ours; below, what SReLU loses when it is changed"
CAPTION = "Training loss on CIFAR-10 and CIFAR-100; test errors at the end"
LINES = "Line: mean over the seeds; band: from the lowest to the highest."
LEARNED = "The functions that SReLU learned, one run each, over 98 % of the inputs they saw"
README, BEGIN, END = "README.md", "<!-- results -->", "<!-- end of results -->"

TEXT = """\
# The paper's results beside ours

Generated from the records in [results](../results) by `srelu paper page`, but for the findings,
which are written by hand in [findings.md](findings.md). Every number in a table has its n, and a
cell that was not run says which command would fill it.
"""

PROTOCOL = f"""\
## One protocol for all rows

- Networks, preprocessing, initialisation and optimizer of each data set as published, but for one
  start: NIN for CIFAR-10 as in Caffe's model zoo; for CIFAR-100 the same layers (its authors took
  the maximum in the second pool too) with the learning rates and decay of its authors' own files;
  contrast normalisation and ZCA whitening as in the maxout experiments; where images are
  mirrored, that is done to the whitened ones.
  CIFAR-100's own initial weights (0.001 and 0.01 in the first three layers) were dead with ReLU at
  all five seeds tried (block `start` below), so all rivals begin with those of CIFAR-10, 0.05
  everywhere: taken because ReLU learns from them, by the training loss of the first epochs alone.
  Of MNIST's only the layers are published: its start, learning rate and length are ours. From our
  first one ReLU ended without two and three classes at two of three seeds (block `start`), so the
  last layer starts with smaller weights and biases of 1 for all rivals: changed by the training
  loss of those runs, and by training steps that left all classes, before any rival was trained
  from it.
  Rivals differ in the activation alone; runs of one seed share initial weights and batches.
- SReLU: a_l = 0.2, t_r from the 90th percentile, frozen for 5 % of the training, the learning rate
  of the weights, no decay. PReLU starts at 0.25. APL has its authors' own penalty.
- Two lengths: {LENGTHS["short"]["cifar10"]} epochs, and 120,000 iterations of 128 images, which are
  {LENGTHS["published"]["cifar10"]} epochs of 390 whole batches: published with Caffe's NIN for
  CIFAR-10. CIFAR-100 gets as many (NIN's authors had 260 epochs); the SReLU paper does not say how
  long it trained. The learning rate falls at the published shares of either.
- The result is the error of the last epoch's weights, a single model in a single view, never the
  best epoch. The error of an exponential average of the weights ({FAITHFUL["ema"]}) is a second
  column for every rival, not a choice. Training is in bfloat16 autocast.
- Test data are opened once a run, at its end, and nothing was chosen on them here. But a scouting
  before this protocol was fixed looked at CIFAR-10 test errors about 25 times, twice to compare
  learning rates of SReLU's own parameters, and at CIFAR-100's 3 times, with another learning rate.
- A seed at which one rival is dead (in its first {DEAD_AFTER} epochs its training loss was never
  below that of guessing) is replaced by the next seed for all rivals of that comparison, and
  counted. A run that diverges later is counted and never replaced, nor trained on once it has
  guessed for {PATIENCE} epochs. Until November 16 the loss of
  the second epoch alone decided: one ReLU start was replaced by that which would now go on.

## Other systems

- NIN itself has max pooling throughout and its authors' 200, 30 and 30 epochs. Maxout,
  probabilistic maxout, the APL network, DSN, tree-based priors and stochastic pooling are trained
  as their own authors did; [systems.md](systems.md) says which decisions are ours. One seed each.
- On CIFAR, all of these but NIN, and DSN without flips, are cut to {SHORT} epochs, the schedule
  with them. Such a number is called short, and says nothing about the paper's. Each must beat a
  linear classifier on the same input, which stands below them: the notes say whether it does. They
  may be slow: each of those but NIN is given {PATIENCE} epochs to leave the loss of guessing, and
  so is GoogLeNet.
- GoogLeNet is trained on Imagenette, ten of ImageNet's classes, with two seeds: which activation
  does better there is a hint, and no more, about what it does on ImageNet.

## Where the paper's own numbers come from

Its rows for NIN + ReLU, LReLU and APL match the APL paper's own table, which had another
preprocessing and schedule, and its row NIN is that of NIN's authors; among these rows only PReLU
and SReLU are marked as its own. So its differences between SReLU and ReLU, LReLU or APL appear to
compare two protocols, and ours, which compare one, need not agree with them.
"""


def render(results: PaperResults, findings: str) -> str:
    """The whole page as Markdown, with what was found in words."""
    from .figures import record_figures  # late: figures are slow to import

    learned = record_figures.learned_records(results)
    parts = [TEXT]
    if learned:
        parts += [f"![{SHOWN}]({Path(OVERVIEW).name})\n", f"{SHOWN}.\n"]
    parts += [findings, "## SReLU against ReLU and PReLU\n", headline(results), PROTOCOL]
    parts += ["## Tables\n"]
    for name in paper_tables.NAMES:
        parts += map(grid_markdown, paper_tables.make_tables(name, results))
    parts += ["## What the gain is made of\n", *map(grid_markdown, ablation_tables(results))]
    fits = fit_tables.make_tables(results)
    if fits:
        parts += ["## How they fit, and what is inside\n", *map(grid_markdown, fits)]
    if learned:
        parts += ["## What was learned\n", f"![{LEARNED}]({Path(FUNCTIONS).name})\n"]
        parts += [f"{LEARNED}; thin: single channels, thick: the mean of all; scales differ.\n"]
    if record_figures.input_records(results):
        caption = record_figures.INPUTS_CAPTION
        parts += ["## Figure 3\n", f"![{caption}]({Path(INPUTS).name})\n", f"{caption}.\n"]
    parts += ["## Figure 4\n", f"![{CAPTION}]({Path(FIGURE).name})\n", f"{CAPTION}. {LINES}\n"]
    parts += ["## The runs\n", grid_markdown(_runs(results)), _places(results)]
    return "\n".join(parts)


def headline(results: PaperResults) -> str:
    """SReLU against its rivals as Markdown; a sentence if nothing was run."""
    made = "\n".join(map(grid_markdown, difference_tables(results)))
    return made or "Not run yet: `srelu paper run headline`.\n"


def quoted(results: PaperResults) -> str:
    """What the README has between its marks."""
    text = "\n".join(map(grid_markdown, main_difference_table(results)))
    text = f"![{SHOWN}]({OVERVIEW})\n\n{SHOWN}.\n\n{text}" if text else headline(results)
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
    if record_figures.input_records(results):
        made[root / INPUTS] = draw("figure3", "svg", results)
    for path, data in made.items():
        files.write(path, data)
        yield path


def _runs(results: PaperResults) -> Grid:
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
    note = (
        "Device hours, about: the runs' own seconds over the number of runs that were started side "
        "by side, which varies in time. Runs that two blocks share are in both lines. All records "
        f"together, each once: {together}."
    )
    return Grid("Blocks of runs", headers, rows, note)


def _places(results: PaperResults) -> str:
    places = results.places()
    return f"Trained on {'; '.join(places)}.\n" if places else "Nothing was trained yet.\n"
