"""Which records count for which entry of a table, and what the missing ones cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reproduction import ended
from specimens import record_of

from torch_srelu.lab.config.run import Run
from torch_srelu.lab.paper import paper_tables, results_page
from torch_srelu.lab.paper.experiments import MAX_DEAD_SEEDS, required_runs, select_experiments
from torch_srelu.lab.paper.results import PaperResults
from torch_srelu.lab.paper.row_recipes import ROWS, SLOPES


def test_a_cell_has_the_seeds_of_all_its_blocks(paper_results: PaperResults) -> None:
    entry = paper_results.entry("nin+srelu", "cifar100", "short")
    assert entry is not None
    assert entry.errors == pytest.approx({s: (78 + s) / 2 for s in range(1, 9)})
    assert entry.averaged is not None
    assert entry.averaged.mean == pytest.approx(np.mean([(78 + s) / 4 for s in range(1, 9)]))
    relu = paper_results.entry("nin+relu", "cifar100", "short")
    assert relu is not None
    assert list(relu.errors) == [1, 2, 3]
    assert paper_results.entry("nin+srelu", "cifar100", "published") is None
    assert paper_results.entry("nin+apl", "cifar10", "short") is None


def test_a_dead_seed_counts_for_no_rival(tmp_path: Path) -> None:
    def make(activation: str, seed: int) -> Run:
        return ROWS[f"nin+{activation}"]("cifar10", seed)

    found = [
        ended(tmp_path, make(name, seed), "dead" if (name, seed) == ("relu", 2) else "finished")
        for name in ("relu", "prelu", "srelu")
        for seed in (1, 2, 3, 4)
    ]
    paper_results = PaperResults(found)
    for name, dead in (("relu", 1), ("prelu", 0), ("srelu", 0)):
        entry = paper_results.entry(f"nin+{name}", "cifar10", "short")
        assert entry is not None
        assert list(entry.errors) == [1, 3, 4]
        assert entry.status_counts["dead"] == dead
    (line,) = (
        row
        for row in paper_tables.make_tables("table2", paper_results)[0].rows
        if row[0] == "NIN + ReLU"
    )
    assert line[5:] == ["3", "7.33", "1", "0"]


def test_a_run_that_diverged_is_counted_and_not_replaced(tmp_path: Path) -> None:
    runs = required_runs(select_experiments(["headline-cifar10"]), {})
    fates = {("srelu", 2): "diverged"}
    found = [
        ended(tmp_path, run, fates.get((run.activation, run.seed), "finished")) for run in runs
    ]
    paper_results = PaperResults(found)
    entry = paper_results.entry("nin+srelu", "cifar10", "short")
    assert entry is not None
    assert list(entry.errors) == [1, 3]
    assert entry.status_counts["diverged"] == 1
    assert paper_results.missing(select_experiments(["headline-cifar10"])) == []


def test_cost_is_what_like_runs_took(tmp_path: Path) -> None:
    runs = required_runs(select_experiments(["headline-cifar10"]), {})
    shared = {"hardware": "a GPU", "beside": 2}
    found = [record_of(tmp_path, run, [1], environment=shared, kept=1) for run in runs]
    (linear,) = required_runs(
        select_experiments(["linear-cifar10"]), {}
    )  # elsewhere: says nothing of the others
    elsewhere = {"hardware": "a CPU"}
    found.append(record_of(tmp_path, linear, [1], environment=elsewhere, kept=1))
    paper_results = PaperResults(found)
    assert (
        paper_results.time_taken(select_experiments(["linear-cifar10"]))
        == "took 1 min on one a CPU"
    )
    # As specimens have it, two at a time; those that adapt take half a second more.
    seconds = sum(2.0 * run.seed + 0.5 * bool(run.freeze) for run in runs) / 2
    assert paper_results.device_seconds(select_experiments(["headline"])) == pytest.approx(seconds)
    mean = seconds / len(runs)
    assert paper_results.cost(select_experiments(["shared"])) == (
        f"3 runs of 100 epochs, about {max(1, round(3 * mean / 60))} min on one a GPU"
    )
    assert paper_results.cost(select_experiments(["mnist"])) == "9 runs of 50 epochs"
    assert (
        paper_results.cost(select_experiments(["maxout-cifar10"])) == "1 run of 60 epochs"
    )  # another network


def test_what_a_block_needs_is_among_its_runs(tmp_path: Path) -> None:
    """The candidates for LReLU's slope are trained by its block, and tables said it took less."""
    (slopes, lrelu) = select_experiments(["lrelu-mnist"])
    candidates = [record_of(tmp_path, run, kept=1) for run in required_runs([slopes], {})]
    runs = required_runs([lrelu], PaperResults(candidates).by_key)
    found = candidates + [record_of(tmp_path, run, kept=1) for run in runs if not run.validation]
    paper_results = PaperResults(found)
    assert paper_results.missing([lrelu]) == []
    everything = 3600 * sum(paper_results.device_hours().values())
    assert paper_results.device_seconds([lrelu]) == pytest.approx(everything)
    (line,) = (row for row in results_page._runs(paper_results).rows if row[0] == "lrelu")
    # Four candidates, three runs of SReLU and of LReLU each; as many on both CIFARs, where all but
    # the candidates wait for these.
    assert line[2] == "10 of 30"


def test_an_experiment_whose_seeds_all_die_is_given_up(tmp_path: Path) -> None:
    (experiment,) = select_experiments(["headline-cifar100"])
    runs = [ROWS["nin+relu"]("cifar100", seed) for seed in range(1, MAX_DEAD_SEEDS + 1)]
    paper_results = PaperResults([ended(tmp_path, run, "dead") for run in runs])
    assert f"given up after {MAX_DEAD_SEEDS} seeds" in paper_results.cost([experiment])


@pytest.mark.parametrize(
    ("fate", "seeds", "words"),
    [
        (
            "dead",
            MAX_DEAD_SEEDS,
            f"given up after {MAX_DEAD_SEEDS} seeds at which a rival was dead at the start",
        ),
        ("diverged", 1, "6 runs given up: none that could decide them has finished"),
    ],
)
def test_an_experiment_that_waits_in_vain_is_given_up(
    tmp_path: Path, fate: str, seeds: int, words: str
) -> None:
    runs = [ROWS[f"lrelu:{s}"]("cifar10", n) for s in SLOPES for n in range(1, seeds + 1)]
    paper_results = PaperResults([record_of(tmp_path, run, status=fate, kept=1) for run in runs])
    (_, waiting) = select_experiments(["lrelu-cifar10"])
    assert paper_results.cost([waiting]) == words
    lines = [row for grid in paper_tables.row_tables(paper_results) for row in grid.rows]
    (line,) = (row for row in lines if "`srelu paper run lrelu-cifar10`" in row[0])
    assert line == [f"NIN + LReLU: `srelu paper run lrelu-cifar10`, {words}", "9.75", "not run"]


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no committed records in"):
        PaperResults.committed(tmp_path)
