"""SReLU and PReLU against other activations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reproduction import WRONG, ended
from scipy import stats

from torch_srelu.lab.paper import difference_tables
from torch_srelu.lab.paper.experiments import BLOCKS, required_runs, select_experiments
from torch_srelu.lab.paper.published import ERRORS
from torch_srelu.lab.paper.results import PaperResults
from torch_srelu.lab.records import run_record
from torch_srelu.lab.records.run_record import Record


def test_differences_are_paired_and_corrected_together(paper_results: PaperResults) -> None:
    found = {(d.baseline, d.condition): d for d in difference_tables.differences(paper_results)}
    assert list(found) == [
        (rival, condition) for condition in ("cifar10", "cifar100") for rival in ("relu", "prelu")
    ]
    errors = {
        name: [(WRONG[name] + factor * s) / 2 for s in range(1, 9)]
        for name, factor in (("prelu", 2), ("srelu", 1))
    }
    prelu = found["prelu", "cifar10"]
    test = stats.ttest_rel(errors["srelu"], errors["prelu"])
    assert prelu.versus.paired.n == 8
    assert prelu.paper == pytest.approx(-1.33)
    assert prelu.versus.paired.p == pytest.approx(test.pvalue)
    raw = sorted(d.versus.paired.p or 1.0 for d in found.values())
    assert min(d.p or 1.0 for d in found.values()) == pytest.approx(4 * raw[0])
    assert prelu.pooled is not None
    assert prelu.pooled.degrees == 2 + 7 + 7
    assert found["relu", "cifar10"].versus.paired.n == 3
    tests, others, prelus = difference_tables.make_tables(paper_results)
    assert [row[0] for row in tests.rows][:2] == ["ReLU, CIFAR-10", "PReLU, CIFAR-10"]
    assert {row[3] for row in others.rows} == {"16"}
    assert "over 4 tests." in tests.note
    assert [row[:2] for row in prelus.rows] == [
        ["ReLU, CIFAR-10", "+0.07"],
        ["ReLU, CIFAR-100", "-0.01"],
    ]
    assert difference_tables.make_main_table(paper_results) == [tests]


def test_two_seeds_have_no_interval(results: Path) -> None:
    few = PaperResults(record for record in run_record.find(results) if record.run.seed <= 2)
    tests, _, prelus = difference_tables.make_tables(few)
    for grid in (tests, prelus):
        assert {tuple(row[3:]) for row in grid.rows} == {("-", "2", "-")}
        assert "Holm" not in grid.note  # nothing was tested


def test_a_test_alone_is_one(results: Path) -> None:
    def counts(record: Record) -> bool:
        return record.run.activation in ("relu", "srelu") and record.run.dataset == "cifar10"

    alone = PaperResults(filter(counts, run_record.find(results)))
    assert "over this one test." in difference_tables.make_tables(alone)[0].note


def test_rivals_with_options_meet_srelu_at_their_seeds(tmp_path: Path) -> None:
    """LReLU's runs are named by their slope, and the slope is chosen by earlier ones."""
    found: list[Record] = []
    for names in (["headline-cifar10", "slopes-cifar10"], ["lrelu-cifar10", "units-cifar10"]):
        known = run_record.results(found)
        runs = required_runs(select_experiments(names), known)
        found += [ended(tmp_path, run) for run in runs if run.key() not in known]
    paper_results = PaperResults(found)
    further = difference_tables.differences(paper_results, difference_tables.FURTHER)
    assert [(d.baseline, d.condition) for d in further] == [
        (rival, "cifar10") for rival in ("lrelu", "apl", "srelu-manual")
    ]
    assert [d.paper for d in further] == pytest.approx([-1.34, -1.18, -0.20])
    assert {d.versus.paired.n for d in further} == {3}
    seeds = np.arange(1, 4)
    for difference in further:
        expected = (WRONG["srelu"] + seeds - WRONG[difference.baseline] - 2 * seeds).mean() / 2
        assert difference.versus.paired.mean == pytest.approx(expected)
    titles = [grid.title for grid in difference_tables.make_tables(paper_results)]
    assert "SReLU's test error minus that of further rivals, 100 epochs" in titles


def test_every_comparison_can_be_made() -> None:
    """Its runs are in its blocks, the paper has its errors, and its title is its own."""
    for asked in difference_tables.COMPARISONS:
        found = [e for name in asked.blocks for e in BLOCKS[name].experiments]
        for condition in asked.conditions:
            rows = {row for e in found if e.condition == condition for row in e.rows}
            for name in (asked.target, *asked.baselines):
                assert f"nin+{name}" in rows
                assert ERRORS[f"nin+{name}", condition] > 0
    titles = [asked.title for asked in difference_tables.COMPARISONS]
    assert len(set(titles)) == len(titles)
    assert "SReLU's test error minus that of its rivals on MNIST, 50 epochs" in titles
