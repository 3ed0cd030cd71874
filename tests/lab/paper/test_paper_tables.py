"""The paper's tables beside ours, for people and as plain values."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from specimens import record_of

from torch_srelu.lab.models.network_registry import network_spec
from torch_srelu.lab.paper import paper_tables, parameter_counts
from torch_srelu.lab.paper.experiments import required_runs, select_experiments
from torch_srelu.lab.paper.published import LEARNED, TABLES
from torch_srelu.lab.paper.results import PaperResults
from torch_srelu.lab.paper.row_recipes import ROWS, SLOPES, SYSTEMS
from torch_srelu.lab.records import run_record

KEYS = ["row", "condition", "paper", "ours", "protocol", "note"]


def test_json_is_as_agreed(paper_results: PaperResults) -> None:
    entries = paper_tables.plain_values("table2", paper_results)
    assert all(list(e) == KEYS for e in entries)
    by_cell = {(e["row"], e["condition"]): e for e in entries}
    assert len(by_cell) == len(entries) == (11 + 3) + (12 + 2) + 10 + 6  # the paper's, and ours
    srelu_entry = by_cell["nin+srelu", "cifar10"]
    errors = [(18 + s) / 2 for s in range(1, 9)]
    low, high = stats.t.interval(0.95, 7, np.mean(errors), stats.sem(errors))
    assert srelu_entry["paper"] == 8.41
    assert srelu_entry["protocol"] == "faithful, 100 epochs"
    assert srelu_entry["ours"] == {
        "mean": pytest.approx(np.mean(errors)),
        "std": pytest.approx(np.std(errors, ddof=1)),
        "n": 8,
        "ci95": pytest.approx([low, high]),
    }
    empty = by_cell["nin+apl", "cifar100"]
    assert empty["ours"] is None
    assert "`srelu paper run units-cifar100`, 6 runs of 100 epochs" in empty["note"]
    other = by_cell["maxout", "cifar10"]
    assert other["note"].startswith("not run: `srelu paper run maxout-cifar10`, 1 run of 60 epochs")
    assert other["protocol"] == "as its authors trained it, cifar10, 60 of 500 epochs"
    assert by_cell["linear", "cifar100"]["paper"] is None


def test_every_table_has_text_and_values(paper_results: PaperResults) -> None:
    for name in paper_tables.NAMES:
        assert all(
            len(row) == len(g.headers)
            for g in paper_tables.make_tables(name, paper_results)
            for row in g.rows
        )
        assert all(list(e) == KEYS for e in paper_tables.plain_values(name, paper_results))


def test_table3_has_means_and_spread_over_channels(paper_results: PaperResults) -> None:
    entry = paper_results.entry("nin+srelu", "cifar10", "short")
    assert entry is not None
    last = np.stack([r.parameters()["cccp4"][-1].numpy() for r in entry.finished])
    thresholds, slopes, *_ = paper_tables.make_tables("table3", paper_results)
    (row,) = (row for row in slopes.rows if row[0] == "cccp4")
    a_r = last[:, 1]  # t_r, a_r, t_l, a_l in records; t_r, t_l, a_r, a_l in the paper's table
    assert row[1:4] == ["0.77", f"{a_r.mean():.2f}", f"{a_r.std():.2f}"]
    assert thresholds.rows[0][4] == "-0.48"
    entries = {
        (e["row"], e["condition"]): e for e in paper_tables.plain_values("table3", paper_results)
    }
    assert len(entries) == 2 * 9 * 4
    ours = entries["nin+srelu:cccp4:a_r", "cifar10"]["ours"]
    assert ours["mean"] == pytest.approx(a_r.mean())
    assert ours["std"] == pytest.approx(a_r.mean(1).std(ddof=1), rel=1e-5)
    assert (
        LEARNED["cifar100"]["cccp6"]["t_r"] == entries["nin+srelu:cccp6:t_r", "cifar100"]["paper"]
    )


def test_every_cell_has_a_number_or_a_command() -> None:
    for name, table in TABLES.items():
        known = {experiment.name for experiment in select_experiments()}
        for value in paper_tables.plain_values(name, PaperResults([])):
            (command,) = re.findall(
                r"not run: `srelu paper run (\S+)`, \d+ runs? of", value["note"]
            )
            assert command in known
        shown = [
            g
            for g in paper_tables.make_tables(name, PaperResults([]))
            if "parameters" not in g.title
        ]
        assert [len(g.rows) for g in shown] == [len(table.rows_under(c)) for c in table.conditions]


def test_every_row_is_listed_with_its_command_and_cost(paper_results: PaperResults) -> None:
    made = {grid.title: grid.rows for grid in paper_tables.row_tables(paper_results)}
    twice = {"cifar10", "cifar100"}  # where some rows have two lengths
    for (table, condition), rows in zip(
        ((t, c) for t in TABLES.values() for c in t.conditions), made.values(), strict=True
    ):
        own = len(table.rows_under(condition))
        assert len(rows) > own if condition in twice else len(rows) == own
    for title, line in {
        "Table 4: MNIST": [
            "DSN: `srelu paper run dsn-mnist`, 1 run of 100 epochs",
            "0.35",
            "not run",
        ],
        "Table 2: CIFAR-100": [
            "NIN: `srelu paper run nin-cifar100`, 1 run of 260 epochs",
            "35.68",
            "not run",
        ],
        "Table 1: CIFAR-10": [
            "NIN + SReLU: `srelu paper run headline-cifar10 seeds-cifar10`, took 3 min on one "
            "a machine",
            "8.41",
            "11.25, n = 8",
        ],
    }.items():
        assert line in made[title]
    begun = "NIN + PReLU, 308 epochs: `srelu paper run published-cifar10`, 6 runs of 308 epochs"
    assert any(line[0].startswith(begun) for line in made["Table 2: CIFAR-10"])


def test_a_short_run_is_called_short(tmp_path: Path) -> None:
    found = [
        record_of(tmp_path, SYSTEMS[row]("cifar10", 1), range(wrong), kept=1)
        for row, wrong in (("maxout", 30), ("dsn", 20), ("nin", 10))
    ]
    paper_results = PaperResults(found)
    lines = {row[0]: row for row in paper_tables.make_tables("table2", paper_results)[0].rows}
    assert lines["Maxout"][1:7] == ["11.68", "15.00 short", "-", "-", "1", "7.50"]
    assert lines["DSN"][1:7] == ["9.78", "10.00", "-", "-", "1", "5.00"]
    assert lines["NIN"][1:7] == ["10.41", "5.00", "-", "-", "1", "2.50"]
    values = {
        e["row"]: e
        for e in paper_tables.plain_values("table2", paper_results)
        if e["condition"] == "cifar10"
    }
    assert "ours is short, 60 of 500 epochs, and not to be ranked" in values["maxout"]["note"]
    assert "short" not in values["dsn"]["note"]
    assert "ours after 400 epochs" in values["dsn"]["note"]
    assert values["dsn"]["ours"] == {"mean": 10.0, "std": None, "n": 1, "ci95": None}


def test_a_system_is_measured_by_a_linear_classifier_on_its_input(tmp_path: Path) -> None:
    wrong = {"linear": 30, "linear-gcn": 60, "maxout": 29, "apl": 30, "dsn": 59}
    found = [
        record_of(tmp_path, SYSTEMS[row]("cifar10", 1), range(n), kept=1)
        for row, n in wrong.items()
    ]
    entries = paper_tables.plain_values("table2", PaperResults(found))
    notes = {e["row"]: e["note"] for e in entries if e["condition"] == "cifar10"}
    for row, words in {"maxout": "; better", "dsn": "; better", "apl": "; NOT better"}.items():
        assert f"{words} than a linear classifier on the same input" in notes[row]
    assert "linear classifier" not in notes["linear"]


def test_the_slope_that_was_chosen_is_named(tmp_path: Path) -> None:
    candidates = [ROWS[f"lrelu:{slope}"]("cifar10", 1) for slope in SLOPES]
    found = [record_of(tmp_path, run, kept=1) for run in candidates]  # equal: the first is taken
    paper_results = PaperResults(found)
    chosen = required_runs(select_experiments(["lrelu-cifar10"]), paper_results.by_key)
    paper_results = PaperResults(
        [*found, *(record_of(tmp_path, run, kept=1) for run in chosen[4:])]
    )
    entries = paper_tables.plain_values("table2", paper_results)
    (note,) = (e["note"] for e in entries if e["row"] == "nin+lrelu" and e["ours"])
    assert "ours has the slope 0.01, chosen on validation data" in note


def test_photographs_have_top_5_errors_and_a_rate(tmp_path: Path) -> None:
    run = SYSTEMS["googlenet+srelu"]("imagenet", 1)
    made = record_of(tmp_path, run, range(3), kept=3)
    more = {"test_top5_error": 0.025, "images_an_epoch": 9440, "skipped_images": 2}
    run_record.write_run(made.folder, run, made.environment, {**(made.result or {}), **more})
    found = run_record.load(made.folder)
    rate = 9440 / np.median([metrics.seconds for metrics in found.metrics])
    (note,) = (
        e["note"] for e in paper_tables.plain_values("table5", PaperResults([found])) if e["ours"]
    )
    assert "top-5 error 2.50 %" in note
    assert f"{rate:.0f} images a second in training, alone on its device" in note
    assert "2 images could not be decoded" in note


def test_imagenet_is_ours_on_ten_classes(tmp_path: Path) -> None:
    runs = required_runs(select_experiments(["googlenet"]), {})
    paper_results = PaperResults(
        [record_of(tmp_path, run, range(run.seed), kept=1) for run in runs]
    )
    assert paper_results.missing(select_experiments(["googlenet"])) == []
    values = paper_tables.plain_values("table5", paper_results)
    assert [(e["row"], e["paper"], e["ours"]["n"]) for e in values] == [
        ("googlenet", 11.1, 2),
        ("googlenet+srelu", 9.86, 2),
        ("googlenet+prelu", None, 2),
    ]
    for value in values:
        assert value["condition"] == "imagenet"
        assert value["protocol"] == "as its authors trained it, imagenette, 100 epochs"
        assert "10 of ImageNet's 1,000 classes" in value["note"]


@pytest.mark.parametrize(
    ("row", "condition", "expected"),
    [  # published counts, and sums over the published layers
        ("nin", "cifar10", (966_986, 0)),
        ("nin+relu", "cifar100", (984_356, 0)),
        ("nin+srelu", "mnist", (349_674, 4 * 714)),
        ("nin+apl", "cifar100", (984_356, 2 * 1508)),
        ("nin+apl-neuron", "cifar10", (966_986, 2_525_696)),
        ("dsn", "cifar10", (966_986, 0)),
        ("dsn", "cifar100", (984_356, 0)),
        ("dsn", "mnist", (349_674, 0)),
        ("maxout", "mnist", (418_714, 0)),
        ("googlenet", "imagenet", (6_998_552, 0)),
        ("googlenet+srelu", "imagenet", (6_998_552, 4 * 7280)),
    ],
)
def test_parameters_are_those_of_the_networks(row, condition, expected) -> None:
    assert parameter_counts.count(row, condition) == expected


def test_networks_are_filled_again_after_a_count() -> None:
    parameter_counts.count("nin", "cifar10")
    weight = network_spec("nin-cifar10").build("relu", seed=1).get_submodule("conv1.conv").weight
    assert weight.std().item() == pytest.approx(0.05, rel=0.05)  # type: ignore[union-attr]
