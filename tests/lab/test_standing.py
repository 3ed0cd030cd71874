"""Tables from records: which records count for which cell, and that no number is another's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command import process, srelu
from scipy import stats
from specimens import record_of

from torch_srelu.lab import archives, records
from torch_srelu.lab.nets import Conv, build, plan
from torch_srelu.lab.paper import ablations, differences, grids, page
from torch_srelu.lab.paper.blocks import contests
from torch_srelu.lab.paper.contests import wanted
from torch_srelu.lab.paper.figures import FROM_RECORDS
from torch_srelu.lab.paper.published import LEARNED
from torch_srelu.lab.paper.rows import ROWS
from torch_srelu.lab.paper.standing import Standing
from torch_srelu.lab.records import Record
from torch_srelu.lab.run import Run

ROOT = Path(__file__).parents[2]
LAYERS = {layer.name: 3 for layer in plan("nin-cifar10").layers if isinstance(layer, Conv)}
WRONG = {"relu": 24, "prelu": 21, "srelu": 18}  # of 200 images, and the seed more


def ended(root: Path, run: Run, status: str = "finished") -> Record:
    """A record of the run with a number of errors that tells it from the others."""
    wrong = WRONG[run.activation] + (run.seed if run.activation == "srelu" else 2 * run.seed)
    wrong += 60 if run.dataset == "cifar100" else 0
    return record_of(root, run, range(wrong), status=status, layers=LAYERS, kept=3)


def all_of(root: Path, *blocks: str) -> list[Record]:
    return [ended(root, run) for run in wanted(contests(blocks), {})]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both blocks of the headline, as committed."""
    root = tmp_path_factory.mktemp("project")
    archives.collect(all_of(root / "runs", "headline", "seeds"), root / "results")
    return root / "results"


@pytest.fixture(scope="module")
def standing(results: Path) -> Standing:
    return Standing.committed(results)


def test_a_cell_has_the_seeds_of_all_its_blocks(standing: Standing) -> None:
    cell = standing.cell("nin+srelu", "cifar100", "short")
    assert cell is not None
    assert cell.rival.errors == pytest.approx({s: (78 + s) / 2 for s in range(1, 9)})
    assert cell.averaged is not None
    assert cell.averaged.mean == pytest.approx(np.mean([(78 + s) / 4 for s in range(1, 9)]))
    relu = standing.cell("nin+relu", "cifar100", "short")
    assert relu is not None
    assert list(relu.rival.errors) == [1, 2, 3]
    assert standing.cell("nin+srelu", "cifar100", "published") is None
    assert standing.cell("nin+apl", "cifar10", "short") is None


def test_a_dead_seed_counts_for_no_rival(tmp_path: Path) -> None:
    def make(activation: str, seed: int) -> Run:
        return ROWS[f"nin+{activation}"]("cifar10", seed)

    found = [
        ended(tmp_path, make(name, seed), "dead" if (name, seed) == ("relu", 2) else "finished")
        for name in ("relu", "prelu", "srelu")
        for seed in (1, 2, 3, 4)
    ]
    standing = Standing(found)
    for name, dead in (("relu", 1), ("prelu", 0), ("srelu", 0)):
        cell = standing.cell(f"nin+{name}", "cifar10", "short")
        assert cell is not None
        assert list(cell.rival.errors) == [1, 3, 4]
        assert cell.rival.fates["dead"] == dead
    (line,) = (row for row in grids.table("table2", standing)[0].rows if row[0] == "NIN + ReLU")
    assert line[5:] == ["3", "7.33", "1", "0"]


def test_a_run_that_diverged_is_counted_and_not_replaced(tmp_path: Path) -> None:
    runs = wanted(contests(["headline-cifar10"]), {})
    fates = {("srelu", 2): "diverged"}
    found = [
        ended(tmp_path, run, fates.get((run.activation, run.seed), "finished")) for run in runs
    ]
    standing = Standing(found)
    cell = standing.cell("nin+srelu", "cifar10", "short")
    assert cell is not None
    assert list(cell.rival.errors) == [1, 3]
    assert cell.rival.fates["diverged"] == 1
    assert standing.missing(contests(["headline-cifar10"])) == []


def test_json_is_as_agreed(standing: Standing) -> None:
    entries = grids.entries("table2", standing)
    assert all(list(e) == KEYS for e in entries)
    by_cell = {(e["row"], e["condition"]): e for e in entries}
    assert len(by_cell) == len(entries) == 11 + 12 + 10 + 6
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
    assert by_cell["maxout", "cifar10"]["note"].startswith("not run: quoted by the paper")


KEYS = ["row", "condition", "paper", "ours", "protocol", "note"]


def test_every_table_has_text_and_values(standing: Standing) -> None:
    for number in range(1, 6):
        name = f"table{number}"
        assert all(
            len(row) == len(g.headers) for g in grids.table(name, standing) for row in g.rows
        )
        assert all(list(e) == KEYS for e in grids.entries(name, standing))


def test_table3_has_means_and_spread_over_channels(standing: Standing) -> None:
    cell = standing.cell("nin+srelu", "cifar10", "short")
    assert cell is not None
    last = np.stack([r.parameters()["cccp4"][-1].numpy() for r in cell.rival.finished])
    thresholds, slopes, *_ = grids.table("table3", standing)
    (row,) = (row for row in slopes.rows if row[0] == "cccp4")
    a_r = last[:, 1]  # t_r, a_r, t_l, a_l in records; t_r, t_l, a_r, a_l in the paper's table
    assert row[1:4] == ["0.77", f"{a_r.mean():.2f}", f"{a_r.std():.2f}"]
    assert thresholds.rows[0][4] == "-0.48"
    entries = {(e["row"], e["condition"]): e for e in grids.entries("table3", standing)}
    assert len(entries) == 2 * 9 * 4
    ours = entries["nin+srelu:cccp4:a_r", "cifar10"]["ours"]
    assert ours["mean"] == pytest.approx(a_r.mean())
    assert ours["std"] == pytest.approx(a_r.mean(1).std(ddof=1), rel=1e-5)
    assert LEARNED["cifar100"]["cccp6"][0] == entries["nin+srelu:cccp6:t_r", "cifar100"]["paper"]


def test_parameters_are_counted_as_in_the_networks() -> None:
    for row, condition in (
        ("nin+apl", "cifar100"),
        ("nin+prelu", "mnist"),
        ("nin+srelu", "cifar10"),
    ):
        run = ROWS[row](condition, 1)
        net = build(run.net, run.activation, run.options)
        assert sum(grids.count_parameters(row, condition)) == sum(
            p.numel() for p in net.parameters()
        )


def test_differences_are_paired_and_corrected_together(standing: Standing) -> None:
    found = {(d.rival, d.condition): d for d in differences.differences(standing)}
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
    tests, others = differences.grids(standing)
    assert [row[0] for row in tests.rows][:2] == ["ReLU, CIFAR-10", "PReLU, CIFAR-10"]
    assert {row[2] for row in others.rows} == {"16"}


def test_an_ablation_is_measured_against_srelu_of_the_same_seeds(tmp_path: Path) -> None:
    contest = contests(["ablation-left"])[-1]
    wrong = {(): 18, ("t_r", "a_r"): 21}
    found = [
        record_of(tmp_path, run, range(wrong[run.fixed] + run.seed % 2), layers=LAYERS, kept=1)
        for run in contest.runs({})
    ]
    changed, others = ablations.grids(Standing(found))
    left, right = changed.rows[:2]
    mean = np.mean([22, 21, 22]) / 2
    assert left[1:] == [f"{mean:.2f}", "0.29", "+1.50", "-", "3", "-"]  # no spread, no test
    assert right[1:] == ["not run", "-", "-", "-", "-", "-"]
    assert "`srelu paper run ablations`, 27 runs of 100 epochs" in changed.note
    assert "then 3 that wait for these" in others.note


def test_cost_is_what_like_runs_took(tmp_path: Path) -> None:
    runs = wanted(contests(["headline-cifar10"]), {})
    shared = {"hardware": "a GPU", "beside": 2}
    found = [record_of(tmp_path, run, [1], environment=shared, kept=1) for run in runs]
    standing = Standing(found)
    seconds = sum(2.0 * run.seed for run in runs) / 2  # as specimens have it, two at a time
    assert standing.device_seconds(contests(["headline"])) == pytest.approx(seconds)
    mean = seconds / len(runs)
    assert standing.cost(contests(["shared"])) == (
        f"3 runs of 100 epochs, about {max(1, round(3 * mean / 60))} min on one a GPU"
    )
    assert standing.cost(contests(["mnist"])) == "9 runs of 50 epochs"


def test_figure4_draws_the_recorded_losses(standing: Standing) -> None:
    panels = FROM_RECORDS["figure4"](standing).axes
    for axes, condition in zip(panels, ("cifar10", "cifar100"), strict=True):
        drawn = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines}
        assert [label.split(":")[0] for label in drawn] == ["SReLU", "PReLU", "ReLU"]
        cell = standing.cell("nin+prelu", condition, "short")
        assert cell is not None
        losses = [[m.train_loss for m in r.metrics] for r in cell.rival.finished]
        np.testing.assert_allclose(list(drawn.values())[1], np.mean(losses, axis=0))
    empty = FROM_RECORDS["figure4"](Standing([])).axes[0]
    assert "srelu paper run headline-cifar10" in empty.texts[0].get_text()


def test_page_is_written_beside_the_results(results: Path, standing: Standing) -> None:
    root = results.parent
    (root / "docs").mkdir()
    with pytest.raises(ValueError, match="is not a checkout of this project"):
        list(page.write(standing, results))
    (root / "README.md").write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    (root / page.FINDINGS).write_text("## Found\n\nIt was seen.\n")
    out = srelu(f"paper table2 --markdown --results {results}").output.split("\n")
    assert [line.split()[0] for line in out if line] == [
        str(root / name) for name in (page.PAGE, page.FIGURE, page.README)
    ]
    text = (root / page.PAGE).read_text()
    assert text == page.render(standing, "## Found\n\nIt was seen.\n")
    assert "It was seen." in text
    assert "| NIN + SReLU | 8.41 | 11.25 |" in text
    readme = (root / "README.md").read_text()
    assert readme.startswith("before\n")
    assert readme.endswith("\nafter\n")
    assert "| PReLU, CIFAR-10 | -1.33 |" in readme
    assert "old" not in readme


def test_committed_page_and_readme_say_what_the_records_say() -> None:
    standing = Standing.committed(ROOT / "results")
    findings = (ROOT / page.FINDINGS).read_text()
    assert (ROOT / page.PAGE).read_text() == page.render(standing, findings)
    assert page.quoted(standing) in (ROOT / "README.md").read_text()


def test_committed_records_are_small_and_complete() -> None:
    folder = ROOT / "results"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4_000_000
    keys = [record.run.key() for record in records.find(folder)]
    assert len(set(keys)) == len(keys)
    for record in records.find(folder):
        assert record.result is not None
        if record.result["status"] == "finished":
            wrong = (record.predictions() != record.labels()).double().mean().item()
            assert wrong == record.result["test_error"], record.folder


@pytest.fixture
def command(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable:
    monkeypatch.chdir(tmp_path)
    return lambda line: srelu(f"{line} --results {results}")


def test_commands_print_tables_and_values(command: Callable) -> None:
    assert "NIN + SReLU" in command("paper table1").output
    values = json.loads(command("paper table4 --json").output)
    assert {e["condition"] for e in values} == {"mnist"}
    assert "PReLU, CIFAR-100" in command("paper differences").output
    assert command("paper figure4 --out f.svg").output == "figure4 is in f.svg\n"


def test_run_has_nothing_to_do_where_all_is_committed(command: Callable) -> None:
    done = command("paper run headline")
    assert done.exit_code == 0
    assert "nin-cifar10 on cifar10, 100 epochs" in done.output
    left = command("paper run mnist --minutes 0")
    assert left.output.strip() == "9 runs are left: the same command goes on from here."
    assert "headline" in srelu("paper run").output


def test_collect_takes_what_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = wanted(contests(["headline-cifar10"]), {})
    for run in runs[:4]:
        ended(tmp_path / "runs", run)
    record_of(tmp_path / "runs", runs[4], status=None)
    record_of(tmp_path / "runs", ROWS["nin+relu"]("cifar10", 77))  # of no block
    first = srelu("paper collect headline-cifar10 --results there")
    assert "4 records added, 0 were there before" in first.output
    assert "5 runs of headline-cifar10 have no result." in first.output
    assert len(records.find(tmp_path / "there")) == 4
    assert "0 records added, 4 were" in srelu("paper collect --results there").output


def test_tables_need_neither_data_nor_slow_packages() -> None:
    code = (
        "import sys; from torch_srelu.lab.cli import app; app(['paper', 'table2'], "
        "standalone_mode=False); print(sorted({'matplotlib', 'plotly', 'sklearn', 'sympy',"
        " 'torch._inductor'} & sys.modules.keys()))"
    )
    out, _ = process("-c", code).communicate(timeout=60)
    assert out.splitlines()[0].startswith("Table 2: CIFAR-10")
    assert out.splitlines()[-1] == "[]"
