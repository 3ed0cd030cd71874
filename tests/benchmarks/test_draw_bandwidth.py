"""The bandwidth figure: curves of the records."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def record(provider, images, which, clock, median_us):
    return {
        "provider": provider,
        "shape": f"{images}x128x32x32",  # half a mebibyte an image
        "dtype": "float32",
        "pass": which,
        "clock": clock,
        "median_us": str(median_us),
        "rounds": "3",
        "hardware": "some",
        "torch": "some",
    }


@pytest.fixture
def draw_bandwidth(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import draw_bandwidth

    return draw_bandwidth


def test_curves_are_bytes_over_time(draw_bandwidth):
    rows = [
        record(provider, images, which, clock, 100 * images * factor)
        for provider, factor in (("byte floor", 1), ("relu", 2), ("srelu fused", 4))
        for images in (8, 2)
        for which, clock in (
            ("forward", "gpu"),
            ("forward+backward", "gpu"),
            ("forward", "wall"),
            ("forward+backward", "wall"),
        )
    ]
    figure = draw_bandwidth.draw(rows)
    assert [axes.get_title() for axes in figure.axes] == [
        "float32, forward",
        "float32, forward+backward",
    ]
    for axes, passes in zip(figure.axes, (2, 5), strict=True):  # reads and writes
        curves = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
        assert list(curves) == ["srelu fused", "relu", "byte floor"]
        for factor, curve in zip((4, 2, 1), curves.values(), strict=True):
            rate = passes * 2**19 / (factor * 100e-6) / 1e9
            assert curve == [[1.0, pytest.approx(rate)], [4.0, pytest.approx(rate)]]


def test_committed_records_are_drawn_for_the_docs_and_others_beside_them(
    draw_bandwidth, tmp_path, monkeypatch
):
    committed = draw_bandwidth.COMMITTED / "sizes-cuda.csv"
    own = tmp_path / "own" / committed.name
    for folder in (tmp_path / "docs", own.parent):
        folder.mkdir()
    own.write_bytes(committed.read_bytes())
    monkeypatch.setattr(draw_bandwidth, "DOCS", tmp_path / "docs")
    draw_bandwidth.main([])
    draw_bandwidth.main([str(own)])
    drawn = [(tmp_path / folder / "bandwidth.svg").read_text() for folder in ("docs", "own")]
    assert drawn[0] == drawn[1]
    assert "NVIDIA" in drawn[0]


def test_records_that_are_missing_are_named(draw_bandwidth, tmp_path, capsys):
    with pytest.raises(SystemExit):
        draw_bandwidth.main([str(tmp_path / "none.csv")])
    assert f"no {tmp_path / 'none.csv'}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
