"""Which runs are compared, and with which numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from specimens import IMAGES, specimen

from torch_srelu.lab.analysis import comparison_tables
from torch_srelu.lab.analysis.comparison import compare, places
from torch_srelu.lab.records import run_record
from torch_srelu.lab.report import render

RELU = [9, 12, 7]  # misclassified images by seed
SRELU = [6, 7, 5]


def both(root: Path) -> list[run_record.Record]:
    relu = [specimen(root, "relu", seed, range(n)) for seed, n in enumerate(RELU)]
    return relu + [specimen(root, "srelu", seed, range(50, 50 + n)) for seed, n in enumerate(SRELU)]


def test_rivals_of_one_protocol_are_compared(tmp_path: Path) -> None:
    (c,) = compare(both(tmp_path))
    assert [rival.name for rival in c.rivals] == ["relu", "srelu"]
    assert c.baseline.name == "relu"
    assert c.title == "nin-digits on digits, 4 epochs"
    percent = 100 / IMAGES
    assert list(c.rivals[1].errors.values()) == pytest.approx([percent * n for n in SRELU])
    assert c.rivals[0].seconds == 2.0


def test_difference_is_the_paired_one(tmp_path: Path) -> None:
    (c,) = compare(both(tmp_path))
    versus = c.differences["srelu"]
    errors = [[100 * n / IMAGES for n in group] for group in (SRELU, RELU)]
    expected = stats.ttest_rel(*errors)
    assert versus.paired.p == pytest.approx(expected.pvalue)
    assert versus.p == versus.paired.p  # one rival: nothing to correct
    assert c.pooled is not None
    assert c.pooled.degrees == 4
    assert c.pooled.std == pytest.approx(np.sqrt(np.mean([np.var(e, ddof=1) for e in errors])))
    assert versus.images is not None
    assert versus.images[0] < versus.paired.mean < versus.images[1]


def test_bootstrap_reads_the_predictions(tmp_path: Path) -> None:
    same = [specimen(tmp_path, a, 1, range(20)) for a in ("relu", "prelu")]
    other = specimen(tmp_path, "apl", 1, range(100, 120))  # as many errors, on other images
    (c,) = compare([*same, other])
    assert c.differences["prelu"].images == (0.0, 0.0)
    low, high = c.differences["apl"].images or (0, 0)
    assert low < 0 < high


def test_holm_counts_the_rivals(tmp_path: Path) -> None:
    more = [specimen(tmp_path, "prelu", s, range(n)) for s, n in enumerate([8, 13, 6])]
    (c,) = compare([*both(tmp_path), *more])
    raw = {name: versus.paired.p or 0.0 for name, versus in c.differences.items()}
    assert c.differences["srelu"].p == pytest.approx(2 * raw["srelu"])
    assert c.differences["prelu"].p == pytest.approx(max(raw["prelu"], 2 * raw["srelu"]))


def test_dead_and_diverged_runs_are_counted_and_left_out(tmp_path: Path) -> None:
    runs = both(tmp_path)
    runs += [specimen(tmp_path, "relu", 3, status="dead"), specimen(tmp_path, "srelu", 3, [1])]
    runs += [specimen(tmp_path, "relu", 4, status="diverged"), specimen(tmp_path, "srelu", 4, [1])]
    runs += [specimen(tmp_path, "relu", 5, status=None), specimen(tmp_path, "srelu", 5, [1])]
    (c,) = compare(runs)
    relu, srelu = c.rivals
    assert relu.status_counts == {"finished": 3, "dead": 1, "diverged": 1, "unfinished": 1}
    assert list(relu.errors) == [0, 1, 2]
    assert len(srelu.errors) == 6
    assert c.differences["srelu"].paired.n == 3  # the seeds that both finished


def test_no_test_on_two_seeds(tmp_path: Path) -> None:
    (c,) = compare([r for r in both(tmp_path) if r.run.seed < 2])
    assert c.differences["srelu"].paired.n == 2
    assert c.differences["srelu"].p is None


def test_protocols_are_kept_apart(tmp_path: Path) -> None:
    long = specimen(tmp_path, "relu", 0, [1], epochs=5)
    short, other = compare([*both(tmp_path), long])
    assert short.protocol["epochs"] == 4
    assert (other.protocol["epochs"], [r.name for r in other.rivals]) == (5, ["relu"])


def test_titles_name_what_differs(tmp_path: Path) -> None:
    runs = [
        specimen(tmp_path, "relu", 0, [1]),
        specimen(tmp_path, "relu", 0, [1], augmentation="flips"),
        specimen(tmp_path, "relu", 0, [1], epochs=9),
    ]
    plain, flips, long = (c.title for c in compare(runs))
    assert plain == "nin-digits on digits, 4 epochs, augmentation none"
    assert flips == "nin-digits on digits, 4 epochs, augmentation flips"
    assert long == "nin-digits on digits, 9 epochs"


def test_baseline_counts_where_it_took_part(tmp_path: Path) -> None:
    alone = specimen(tmp_path, "prelu", 0, [1], epochs=5)
    first, second = compare([*both(tmp_path), alone], baseline="srelu")
    assert (first.baseline.name, second.baseline.name) == ("srelu", "prelu")


def test_predictions_of_other_images_than_the_labels_are_damage(tmp_path: Path) -> None:
    runs = both(tmp_path)
    predictions, labels = runs[0].predictions(), runs[0].labels()
    run_record.write_predictions(runs[0].folder, predictions[:-1], labels)
    with pytest.raises(
        run_record.RecordError, match=r"predictions.gz is damaged \(199 classes, of"
    ):
        _ = compare(runs)[0].differences


def test_without_one_test_set_there_is_no_interval_over_its_images(tmp_path: Path) -> None:
    runs = both(tmp_path)
    predictions, labels = runs[0].predictions(), runs[0].labels()
    run_record.write_predictions(runs[0].folder, predictions[:-1], labels[:-1])
    versus = compare(runs)[0].differences["srelu"]
    assert versus.images is None
    assert versus.paired.n == len(RELU)


def test_places_are_those_of_the_records(tmp_path: Path) -> None:
    elsewhere = {"hardware": "another machine", "versions": {"torch": "2.13", "numpy": "2"}}
    there = specimen(tmp_path, "prelu", 0, [1], environment=elsewhere)
    (c,) = compare([*both(tmp_path), there])
    assert places(c.records) == ["a machine, torch 2.11", "another machine, torch 2.13"]


def test_places_are_also_those_where_a_run_was_stopped(tmp_path: Path) -> None:
    before = {"hardware": "a first machine", "versions": {"torch": "2.11"}, "beside": 2}
    there = {"hardware": "a machine", "versions": {"torch": "2.11"}, "before": [before]}
    (c,) = compare([specimen(tmp_path, "relu", 1, environment=there)])
    assert places(c.records) == ["a first machine, torch 2.11", "a machine, torch 2.11"]
    assert "Seconds do not compare" in comparison_tables.errors(c).note
    assert "a first machine; torch 2.11" in render([c])


def test_variants_of_an_activation_are_told_apart(tmp_path: Path) -> None:
    runs = [
        specimen(tmp_path, "lrelu", 0, [1], options={"slope": 0.1}),
        specimen(tmp_path, "lrelu", 0, [1], options={"slope": 0.3}),
        specimen(tmp_path, "srelu", 0, [1]),
        specimen(tmp_path, "srelu", 0, [1], quantile=0.8),
    ]
    (c,) = compare(runs, baseline="lrelu:slope=0.3")
    expected = ["lrelu:slope=0.1", "lrelu:slope=0.3", "srelu:quantile=0.9", "srelu:quantile=0.8"]
    assert [rival.name for rival in c.rivals] == expected
    assert c.baseline is c.rivals[1]


def test_a_finished_record_counts_before_an_unfinished_one(tmp_path: Path) -> None:
    finished = specimen(tmp_path / "a", "relu", 0, [1, 2])
    again = specimen(tmp_path / "b", "relu", 0, status=None)
    (c,) = compare([finished, again])
    assert c.rivals[0].records == (finished,)


def test_unknown_baseline(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown baseline 'rely': did you mean 'relu'"):
        compare(both(tmp_path), baseline="rely")


def test_runs_that_begin_with_other_weights_are_compared_over_seeds(tmp_path: Path) -> None:
    runs = [
        specimen(tmp_path, name, seed, [seed], start=f"{seed:010}")
        for name in ("lrelu", "srelu")
        for seed in (1, 2)
    ]
    (c,) = compare([*runs])
    assert [len(rival.records) for rival in c.rivals] == [2, 2]
    assert len(compare([*runs, specimen(tmp_path, "srelu", 1, [1])])) == 2


def test_the_time_of_a_rival_includes_its_initialisation(tmp_path) -> None:
    record = specimen(tmp_path, "srelu", seed=1)
    assert record.result is not None
    (comparison,) = compare([record])
    paid = record.result["seconds"] + record.result["adapt_seconds"]
    assert record.result["adapt_seconds"] > 0
    assert comparison.rivals[0].seconds == pytest.approx(paid)
