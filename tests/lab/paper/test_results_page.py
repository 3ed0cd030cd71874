"""The page of results, its figure, and that what is committed says what the records say."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import srelu

from torch_srelu.lab.paper import results_page
from torch_srelu.lab.paper.results import PaperResults
from torch_srelu.lab.records import run_record

ROOT = Path(__file__).parents[3]


def test_page_is_written_beside_the_results(results: Path, paper_results: PaperResults) -> None:
    root = results.parent
    (root / "docs").mkdir()
    with pytest.raises(ValueError, match="is not a checkout of this project"):
        list(results_page.write(paper_results, results))
    (root / "README.md").write_text(
        f"before\n{results_page.BEGIN}\nold\n{results_page.END}\nafter\n"
    )
    (root / results_page.FINDINGS).write_text("## Found\n\nIt was seen.\n")
    out = srelu(f"paper page --results {results}").output.split("\n")
    assert [line.split()[0] for line in out if line] == [
        str(root / name)
        for name in (
            results_page.PAGE,
            results_page.FIGURE,
            results_page.README,
            results_page.FUNCTIONS,
            results_page.OVERVIEW,
        )
    ]
    text = (root / results_page.PAGE).read_text()
    assert text == results_page.render(paper_results, "## Found\n\nIt was seen.\n")
    assert "It was seen." in text
    assert "| NIN + SReLU | 8.41 | 11.25 |" in text
    readme = (root / "README.md").read_text()
    assert readme.startswith("before\n")
    assert readme.endswith("\nafter\n")
    assert "| PReLU, CIFAR-10 | -1.33 |" in readme
    assert "old" not in readme


def test_committed_page_and_readme_say_what_the_records_say() -> None:
    paper_results = PaperResults.committed(ROOT / "results")
    findings = (ROOT / results_page.FINDINGS).read_text()
    assert (ROOT / results_page.PAGE).read_text() == results_page.render(paper_results, findings)
    assert results_page.quoted(paper_results) in (ROOT / "README.md").read_text()


def test_committed_records_are_small_and_complete() -> None:
    folder = ROOT / "results"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4_000_000
    keys = [record.run.key() for record in run_record.find(folder)]
    assert len(set(keys)) == len(keys)
    for record in run_record.find(folder):
        assert record.result is not None
        if record.result["status"] == "finished":
            wrong, labels = (record.predictions() != record.labels()).sum(), record.labels()
            assert record.result["test_error"] * len(labels) == pytest.approx(wrong.item())
