"""The report: its figures, its data, and the page in a browser."""

from __future__ import annotations

import base64
import copy
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from specimens import LAYERS, specimen

from browser import CHROMIUM, Browser
from torch_srelu.lab.analysis.comparison import Comparison, compare
from torch_srelu.lab.records import run_record
from torch_srelu.lab.report import explorer_data, plots, render, srelu_curves

MARKUP = "<b>bold</b><img src=x onerror=hacked=1>"
FOLDER = "20260101-000000-<img src=x onerror=hacked=1>"
ENDING = "<!--</script><script>hacked=1</script>"


def rivals(root: Path, **fields) -> list[run_record.Record]:
    runs = [specimen(root, "relu", s, range(n), **fields) for s, n in enumerate([9, 12, 7])]
    return runs + [specimen(root, "srelu", s, range(n), **fields) for s, n in enumerate([6, 7, 5])]


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    (c,) = compare(rivals(tmp_path))
    return c


def test_convergence_is_mean_and_range_over_seeds(comparison: Comparison) -> None:
    figure = plots.convergence(comparison, "train_loss", "training loss")
    assert figure is not None
    band, line = figure.to_dict()["data"][:2]
    losses = np.array([[m.train_loss for m in r.metrics] for r in comparison.rivals[0].records])
    np.testing.assert_allclose(line["y"], losses.mean(0))
    np.testing.assert_allclose(band["y"][:4], losses.max(0))
    np.testing.assert_allclose(band["y"][:3:-1], losses.min(0))
    percent = plots.convergence(comparison, "train_error", "training error, %", 100)
    assert percent is not None
    np.testing.assert_allclose(percent.to_dict()["data"][1]["y"], 25 * losses.mean(0))
    assert plots.convergence(comparison, "val_error", "validation error") is None


def test_error_bars_end_where_the_interval_does(tmp_path: Path) -> None:
    (c,) = compare([specimen(tmp_path, "relu", s, range(n)) for s, n in enumerate([1, 4])])
    figure, summary = plots.errors(c), c.rivals[0].summary
    assert figure is not None
    assert summary is not None
    assert summary.interval is not None
    bar = figure.data[1].error_x  # the dots come first
    ends = (summary.mean - bar.arrayminus[0], summary.mean + bar.array[0])
    assert ends == pytest.approx(summary.interval)
    assert ends[0] == 0


def test_logarithmic_axes_have_round_ticks() -> None:
    assert plots._log_ticks(0.3, 2.2) == [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
    assert plots._log_ticks(0.0007, 2.3) == [0.0001, 0.001, 0.01, 0.1, 1, 10]


def test_runs_without_result_are_not_in_the_curves(tmp_path: Path) -> None:
    runs = [specimen(tmp_path, "relu", 0, [1]), specimen(tmp_path, "relu", 9, status="dead")]
    (c,) = compare(runs)
    figure = plots.convergence(c, "train_loss", "training loss")
    assert figure is not None
    assert figure.to_dict()["data"][1]["y"] == [m.train_loss for m in runs[0].metrics]


def test_magnitude_follows_the_network(comparison: Comparison) -> None:
    figure = plots.magnitude(comparison)
    assert figure is not None
    relu = figure.to_dict()["data"][0]
    assert relu["x"] == ["conv1", "cccp1"]  # not in alphabetical order
    last = [float(r.inputs().magnitude["conv1"][-1]) for r in comparison.rivals[0].records]
    assert relu["y"][0] == pytest.approx(np.mean(last))


def test_explorer_ships_the_reference_curves(comparison: Comparison) -> None:
    record = comparison.rivals[1].records[0]
    data = explorer_data.explorer([("one", record)])
    assert data is not None
    (layer, _) = data["runs"][0]["layers"]
    values = np.frombuffer(base64.b64decode(layer["packed"]), "<f4").reshape(4, 8, 6)
    np.testing.assert_array_equal(values[:, :4, :5], record.parameters()["conv1"].numpy())
    for epoch, channel in ((0, 0), (3, 4)):
        t_r, a_r, t_l, a_l = values[epoch, :4, channel].tolist()
        x = np.sort([layer["low"], layer["high"], t_r, t_l])
        expected = srelu_curves.srelu(x, t_r, a_r, t_l, a_l)
        np.testing.assert_allclose(values[epoch, 4:, channel], expected, rtol=1e-5, atol=1e-5)


def test_explorer_keeps_to_its_budget(comparison: Comparison, monkeypatch) -> None:
    record = comparison.rivals[1].records[0]
    monkeypatch.setattr(explorer_data, "BUDGET_BYTES", 1000)
    data = explorer_data.explorer([("one", record)])
    assert data is not None
    assert data["runs"][0]["epochs"] == [1, 3, 4]  # 320 bytes an epoch: three fit
    packed = sum(len(base64.b64decode(x["packed"])) for x in data["runs"][0]["layers"])
    assert packed <= 1000


def test_explorer_leaves_out_layers_without_inputs(comparison: Comparison) -> None:
    """Such as the auxiliary heads of GoogLeNet, which compute nothing in evaluation mode."""
    record = copy.copy(comparison.rivals[1].records[0])
    learned = record.parameters()
    object.__setattr__(record, "parameters", lambda: learned | {"head": learned["conv1"]})
    data = explorer_data.explorer([("one", record)])
    assert data is not None
    assert [layer["name"] for layer in data["runs"][0]["layers"]] == ["conv1", "cccp1"]


def test_page_is_one_file_with_plotly_once(comparison: Comparison) -> None:
    page = render([comparison])
    assert page.count(get_plotlyjs()) == 1
    own = page.replace(get_plotlyjs(), "")
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", own)


# ---- in the browser --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium here: the report was not looked at in a browser")
    with Browser(tmp_path_factory.mktemp("profile")) as b:
        yield b


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> list[run_record.Record]:
    """Runs of two protocols whose layers, folders and machine have names that are markup."""
    root = tmp_path_factory.mktemp("records")
    environment = {"hardware": ENDING, "versions": {"torch": MARKUP}}
    runs = rivals(root, layers={"conv1": 5, MARKUP + ENDING: 3}, environment=environment)
    renamed = root / FOLDER
    runs[-1].folder.rename(renamed)
    runs[-1] = run_record.load(renamed)
    runs.append(specimen(root, "srelu", 7, status="diverged", layers={"conv1": 5}))
    return [*runs, specimen(root, "srelu", 1, [3], epochs=2)]


@pytest.fixture(scope="module")
def page(hostile: list[run_record.Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(compare(hostile)), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_looks_right_at_this_width(
    browser: Browser, page: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    browser.complaints.clear()
    browser.open(page, width, 900, dark=dark)
    picture = browser.screenshot(tmp_path / "page.png")
    assert browser.complaints == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert struct.unpack(">I", picture[16:20])[0] <= width
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (brightness < 60) if dark else (brightness > 200)
    # Every figure has drawn something, and everything drawn lies on the page.
    drawn = browser.evaluate(
        "[...document.querySelectorAll('.plot')].map((p) => {"
        " const r = p.querySelector('.main-svg').getBoundingClientRect();"
        " return [p.querySelectorAll('.scatterlayer .trace').length, r.left >= 0, r.width]; })"
    )
    # errors, loss, error, magnitude of two comparisons; two layers; the explorer
    assert len(drawn) == 2 * 4 + len(LAYERS) + 1
    assert all(traces > 0 and left and 0 < w <= width for traces, left, w in drawn)


def test_names_are_text(browser: Browser, page: Path) -> None:
    browser.complaints.clear()
    browser.open(page, 1200, 900)
    assert browser.evaluate("typeof hacked") == "undefined"
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.evaluate("document.scripts.length") == 3
    browser.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    text = browser.evaluate("document.body.innerText")
    assert ENDING in text  # the machine
    assert FOLDER in text
    labels = browser.evaluate(
        "[...document.querySelectorAll('.magnitude .xtick text')].map((t) => t.textContent)"
    )
    assert MARKUP + ENDING in labels
    assert MARKUP + ENDING in browser.evaluate("document.getElementById('layers').textContent")
    assert browser.complaints == []


def choose(browser: Browser, control: str, value: int, event: str) -> None:
    browser.evaluate(
        f"(() => {{ const c = document.getElementById('{control}'); c.value = {value};"
        f" c.dispatchEvent(new Event('{event}')); }})()"
    )


def test_explorer_moves_the_curve(
    browser: Browser, page: Path, hostile: list[run_record.Record]
) -> None:
    browser.complaints.clear()
    browser.open(page, 1200, 900)
    names = browser.evaluate("[...document.getElementById('run').options].map((o) => o.text)")
    long, short = (f"nin-digits on digits, {n} epochs" for n in (4, 2))
    assert names == [*(f"{long}: srelu, seed {s}" for s in range(3)), f"{short}: srelu, seed 1"]
    choose(browser, "run", 1, "change")
    choose(browser, "layer", 0, "change")
    choose(browser, "channel", 2, "input")
    record = hostile[4]
    for epoch in (0, 3):
        choose(browser, "epoch", epoch, "input")
        expected = record.parameters()["conv1"][epoch, :, 2].numpy()
        shown = browser.evaluate(
            "['t_r', 'a_r', 't_l', 'a_l'].map((n) => +document.getElementById(n).textContent)"
        )
        np.testing.assert_allclose(shown, expected, rtol=0.006)  # three digits are shown
        curve = browser.evaluate(
            "(({x, y}) => [x, y])(document.getElementById('explorer').data[2])"
        )
        x, y = map(np.array, curve)
        np.testing.assert_allclose(
            y, srelu_curves.srelu(x, *map(float, expected)), rtol=1e-5, atol=1e-5
        )
    assert browser.evaluate("document.getElementById('epoch-name').textContent") == "4"
    assert browser.complaints == []


def test_explorer_plays_the_epochs(browser: Browser, page: Path) -> None:
    browser.open(page, 390, 844)
    seen = browser.evaluate(
        "new Promise((done) => {"
        " const seen = [], name = document.getElementById('epoch-name');"
        " new MutationObserver(() => {"
        "   seen.push(name.textContent); if (name.textContent === '4') done(seen);"
        " }).observe(name, { childList: true });"
        " document.getElementById('play').click(); })"
    )
    assert seen == ["1", "2", "3", "4"]


def test_a_layer_can_be_picked_from_its_picture(browser: Browser, page: Path) -> None:
    browser.open(page, 390, 844)
    browser.evaluate("document.querySelectorAll('#layers button')[1].click()")
    assert browser.evaluate("document.getElementById('layer').value") == "1"
    pressed = browser.evaluate(
        "[...document.querySelectorAll('#layers button')].map((b) => b.ariaPressed)"
    )
    assert pressed == ["false", "true"]


def test_without_srelu_there_is_no_explorer(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    (c,) = compare([specimen(tmp_path / "runs", "relu", 1, [2])])
    path.write_text(render([c]), encoding="utf-8")
    browser.complaints.clear()
    browser.open(path, 1200, 900)
    assert browser.evaluate("document.getElementById('explorer')") is None
    assert browser.complaints == []
