"""Tables of a comparison: the same numbers in every format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from specimens import specimen

from torch_srelu.lab.analysis import comparison_tables
from torch_srelu.lab.analysis.comparison import Comparison, compare


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    runs = [specimen(tmp_path, "relu", s, range(n)) for s, n in enumerate([9, 12, 7])]
    runs += [specimen(tmp_path, "srelu", s, range(n)) for s, n in enumerate([6, 7, 5])]
    runs += [specimen(tmp_path, "srelu", 3, status="dead")]
    (c,) = compare(runs)
    return c


def printed(c: Comparison, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(comparison_tables.terminal(c))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_text_fits_a_terminal_and_counts_the_dead(comparison: Comparison) -> None:
    text = printed(comparison)
    assert max(map(len, text.splitlines())) <= 80
    relu, srelu = (line.split() for line in text.splitlines()[3:5])
    assert relu[:3] == ["relu", "4.67", "1.26"]
    assert srelu[:3] == ["srelu", "3.00", "0.50"]
    assert "3 of 4" in text
    assert "Not in the means: srelu: 1 dead." in text
    assert "degrees of freedom 4" in " ".join(text.split())


def test_long_names_and_large_differences_are_not_broken(tmp_path: Path) -> None:
    runs = [specimen(tmp_path, "relu", s, range(n)) for s, n in enumerate([19, 12, 7] * 4)]
    runs += [specimen(tmp_path, "srelu", s, range(n)) for s, n in enumerate([160, 70, 50] * 4)]
    (c,) = compare(runs)
    c = replace(c, rivals=(c.rivals[0], replace(c.rivals[1], name="srelu:quantile=0.8")))
    lines = printed(c).splitlines()
    for grid in comparison_tables.text_tables(c):
        assert grid.title in lines
        for cells in (grid.headers, *grid.rows):
            assert any(line.split() == " ".join(cells).split() for line in lines)


def test_an_interval_of_errors_stays_in_percent(tmp_path: Path) -> None:
    runs = [specimen(tmp_path, "relu", s, range(n)) for s, n in enumerate([1, 7, 1])]
    runs += [specimen(tmp_path, "srelu", s, range(n)) for s, n in enumerate([3, 2, 5])]
    (c,) = compare(runs)
    relu, srelu = comparison_tables.numbers(c)
    assert (relu["error_low"], relu["error_pooled_low"]) == (0.0, 0.0)
    assert relu["error_high"] > relu["error_pooled_high"] > relu["error_mean"]
    assert srelu["difference_low"] < 0 < srelu["difference_high"]
    assert comparison_tables.errors(c).rows[0][3].startswith("0.00 to ")


def test_markdown_shows_the_same_values(comparison: Comparison) -> None:
    text = comparison_tables.markdown(comparison)
    for grid in comparison_tables.text_tables(comparison):
        for row in grid.rows:
            assert "| " + " | ".join(row) + " |" in text
        assert grid.note in text
    widths = {line.count("|") for line in text.splitlines() if "srelu |" in line}
    assert widths == {7, 6, 4}  # six, five and three columns


def test_json_and_csv_hold_every_number(comparison: Comparison) -> None:
    (plain,) = json.loads(comparison_tables.to_json([comparison]))
    assert plain["protocol"] == json.loads(json.dumps(comparison.protocol))
    relu, srelu = plain["rivals"]
    versus = comparison.differences["srelu"]
    assert srelu["error_mean"] == pytest.approx(3.0)
    assert (srelu["n"], srelu["dead"], srelu["pairs"]) == (3, 1, 3)
    assert srelu["p_holm"] == versus.p
    assert (srelu["difference_images_low"], srelu["difference_images_high"]) == versus.images
    assert relu["difference"] is None
    rows = list(csv.DictReader(io.StringIO(comparison_tables.to_csv([comparison]))))
    for row, numbers in zip(rows, plain["rivals"], strict=True):
        assert row == {k: "" if v is None else str(v) for k, v in numbers.items()}


def test_a_name_is_never_markup(comparison: Comparison) -> None:
    hostile = replace(comparison.rivals[1], name="[red]s|relu[/]")
    c = replace(comparison, rivals=(comparison.rivals[0], hostile))
    assert "[red]s|relu[/]" in printed(c, width=120)
    assert "[red]s\\|relu[/]" in comparison_tables.markdown(c)


def test_conclusion_claims_no_more_than_the_test(tmp_path: Path) -> None:
    def verdict(relu: list[int], srelu: list[int]) -> str:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        runs = [specimen(root, "relu", s, range(n)) for s, n in enumerate(relu)]
        runs += [specimen(root, "srelu", s, range(n)) for s, n in enumerate(srelu)]
        (c,) = compare(runs)
        return comparison_tables.conclusion(c)

    found = "srelu has the lowest mean test error, 5.50 %, 5.17 points below relu (p = 0.001)."
    assert verdict([20, 21, 23], [10, 11, 12]) == found
    assert "3 seeds cannot tell from chance" in verdict([20, 14, 18], [10, 18, 12])
    assert "points below relu over the 3 seeds that both have (p" in verdict(
        [20, 21, 23], [10, 11, 12, 9]
    )
    assert verdict([20, 14], [10, 12]).endswith("over n = 2 paired seeds.")
    assert verdict([10, 11], [20, 30]) == (
        "relu has the lowest mean test error, 5.25 %: no rival beats the baseline."
    )


def test_conclusion_on_a_tie_names_the_baseline(tmp_path: Path) -> None:
    runs = [specimen(tmp_path, name, s, range(20)) for name in ("prelu", "relu") for s in (1, 2)]
    (c,) = compare(runs)
    assert comparison_tables.conclusion(c) == (
        "relu has the lowest mean test error, 10.00 %: no rival beats the baseline."
    )


def test_conclusion_on_equal_differences_is_that_they_cannot_be_tested(tmp_path: Path) -> None:
    runs = [specimen(tmp_path, "relu", s, range(s + 4)) for s in range(3)]
    runs += [specimen(tmp_path, "srelu", s, range(s + 2)) for s in range(3)]
    (c,) = compare(runs)
    words = "1.00 points below relu; not tested, the difference is the same at all 3 seeds."
    assert comparison_tables.conclusion(c).endswith(words)


def test_conclusion_on_rivals_without_a_common_seed(tmp_path: Path) -> None:
    runs = [specimen(tmp_path, "relu", s, range(20)) for s in (1, 2)]
    runs += [specimen(tmp_path, "srelu", s, range(10)) for s in (3, 4)]
    (c,) = compare(runs)
    assert comparison_tables.conclusion(c).endswith(
        "not tested, it has no seed in common with relu."
    )


def test_the_note_names_a_pooled_interval_over_other_seeds(
    comparison: Comparison, tmp_path: Path
) -> None:
    words = "unpaired, over all seeds of either"
    assert words not in comparison_tables.differences(comparison)[1].note
    (c,) = compare([*comparison.records, specimen(tmp_path / "more", "srelu", 4, range(9))])
    assert words in comparison_tables.differences(c)[1].note


def test_one_rival_alone(tmp_path: Path) -> None:
    (c,) = compare([specimen(tmp_path, "relu", 1, [3])])
    assert comparison_tables.conclusion(c) == ""
    assert [grid.title for grid in comparison_tables.text_tables(c)] == [
        "nin-digits on digits, 4 epochs"
    ]
    assert "0.50" in printed(c)


def test_nothing_finished(tmp_path: Path) -> None:
    (c,) = compare([specimen(tmp_path, "relu", s, status="dead") for s in (1, 2)])
    assert "0 of 2" in printed(c)
    assert json.loads(comparison_tables.to_json([c]))[0]["rivals"][0]["error_mean"] is None
