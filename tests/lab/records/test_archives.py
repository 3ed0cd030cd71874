"""Archives have the bits of their records; one record that is refused refuses all."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from specimens import specimen

from torch_srelu.lab.analysis.comparison import compare
from torch_srelu.lab.records import archives, run_record
from torch_srelu.lab.records.record_format import RecordError
from torch_srelu.lab.records.run_record import Record
from torch_srelu.lab.report import render


@pytest.fixture
def runs(tmp_path: Path) -> list[Record]:
    made = [specimen(tmp_path / "runs", "relu", s, range(n)) for s, n in enumerate([9, 12, 7])]
    made += [specimen(tmp_path / "runs", "srelu", s, range(n)) for s, n in enumerate([6, 7, 5])]
    return [*made, specimen(tmp_path / "runs", "relu", 3, status="dead")]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_archived_content_is_bit_identical(tmp_path: Path, runs: list[Record]) -> None:
    results = tmp_path / "results"
    archives.collect(runs, results)
    packed = run_record.find(results)
    assert [r.folder.stem for r in packed] == sorted(r.folder.name for r in runs)
    by_key = {record.run.key(): record for record in runs}
    for record in packed:
        whole = by_key[record.run.key()]
        assert record.run == whole.run
        assert (record.environment, record.result) == (whole.environment, whole.result)
        assert record.metrics == whole.metrics
        assert record.tested == whole.tested
        if record.tested:
            assert torch.equal(record.predictions(), whole.predictions())
            assert torch.equal(record.labels(), whole.labels())
        assert record.parameters().keys() == whole.parameters().keys()
        for layer, values in record.parameters().items():
            assert torch.equal(values, whole.parameters()[layer][-1:])
        assert record.weights().keys() == whole.weights().keys() != set()
        for layer, values in record.weights().items():
            assert torch.equal(values, whole.weights()[layer][-1:])
        last, all_epochs = record.inputs(), whole.inputs()
        assert last is not None
        assert all_epochs is not None
        assert torch.equal(last.probabilities, all_epochs.probabilities)
        for layer, values in last.quantiles.items():
            assert torch.equal(values, all_epochs.quantiles[layer][-1:])


def test_archives_are_compared_and_reported_like_records(
    tmp_path: Path, runs: list[Record]
) -> None:
    archives.collect(runs, tmp_path / "results")
    (whole,), (packed,) = compare(runs), compare(run_record.find(tmp_path / "results"))
    assert packed.differences["srelu"] == whole.differences["srelu"]
    assert "srelu, seed 2" in render([packed])


def test_collecting_again_changes_nothing(tmp_path: Path, runs: list[Record]) -> None:
    results = tmp_path / "results"
    added, known = archives.collect(runs[:3], results)
    assert (len(added), known) == (3, [])
    before = contents(results)
    added, known = archives.collect(runs[:3], results)
    assert (added, len(known)) == ([], 3)
    assert contents(results) == before
    assert len(archives.collect(runs, results)[0]) == 4


def test_content_packed_by_another_compressor_is_recognised(
    tmp_path: Path, runs: list[Record]
) -> None:
    results = tmp_path / "results"
    for record in archives.collect(runs, results)[0]:
        packed = {name: record.read(name) for name in (*archives.WHOLE, *archives.LAST_EPOCH)}
        with zipfile.ZipFile(record.folder, "w", zipfile.ZIP_STORED) as archive:
            for name, raw in packed.items():
                if raw is not None:
                    archive.writestr(name, raw)
    before = contents(results)
    added, known = archives.collect(runs, results)
    assert (added, len(known)) == ([], len(runs))
    assert contents(results) == before


def test_records_are_not_packed_beside_themselves(tmp_path: Path, runs: list[Record]) -> None:
    added, known = archives.collect(runs, tmp_path / "runs")
    assert (added, len(known)) == ([], len(runs))
    assert len(run_record.find(tmp_path / "runs")) == len(runs)


def test_a_renamed_record_keeps_its_name_and_is_known(tmp_path: Path, runs: list[Record]) -> None:
    results = tmp_path / "results"
    chosen = []
    for record, name in zip(runs[:2], ("my.first", "my.second"), strict=True):
        record.folder.rename(tmp_path / name)
        chosen.append(run_record.load(tmp_path / name))
    added = archives.collect(chosen, results)[0]
    assert [record.folder.name for record in added] == ["my.first.zip", "my.second.zip"]
    assert len(archives.collect(chosen, results)[1]) == 2


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"activation": "prelu", "seed": 1, "status": None}, "is not finished"),
        ({"activation": "relu", "seed": 0, "wrong": [5]}, "is another record of the run"),
    ],
)
def test_one_refused_record_refuses_all(
    tmp_path: Path, runs: list[Record], second: dict, message: str
) -> None:
    results = tmp_path / "results"
    archives.collect(runs[:2], results)
    before = contents(results)
    other = specimen(tmp_path / "others", **second)
    with pytest.raises(ValueError, match=message):
        archives.collect([*runs, other], results)
    assert contents(results) == before


def test_other_test_data_are_refused(tmp_path: Path, runs: list[Record]) -> None:
    archives.collect(runs[:1], tmp_path / "results")
    folder = runs[1].folder
    run_record.write_predictions(folder, runs[1].predictions(), runs[1].labels().flip(0))
    with pytest.raises(ValueError, match="tested on other labels"):
        archives.collect([run_record.load(folder)], tmp_path / "results")


def test_damaged_archives_say_so(tmp_path: Path, runs: list[Record]) -> None:
    results = tmp_path / "results"
    archives.collect(runs[:1], results)
    (path,) = results.glob("*.zip")
    copy = tmp_path / "elsewhere" / path.name
    copy.parent.mkdir()
    shutil.copy(path, copy)
    with pytest.raises(RecordError, match=r"labels-digits\.gz does not exist"):
        run_record.load(copy).labels()
    copy.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(RecordError, match="is damaged"):
        run_record.load(copy)


@pytest.mark.parametrize(
    ("field", "why"), [(8, "encrypted"), (10, "compression method"), (46, "has no run.json")]
)
def test_a_flipped_bit_in_an_archive_is_detected(
    tmp_path: Path, runs: list[Record], field: int, why: str
) -> None:
    archives.collect(runs[:1], tmp_path)
    (path,) = tmp_path.glob("*.zip")
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + field] ^= 1  # in the list of what the archive holds
    path.write_bytes(content)
    with pytest.raises(RecordError, match=why):
        run_record.find(tmp_path)


def test_two_new_records_of_one_run_are_refused(tmp_path: Path) -> None:
    pair = [specimen(tmp_path / place, "relu", seed=0, wrong=[n]) for n, place in enumerate("ab")]
    with pytest.raises(ValueError, match="is another record of the run"):
        archives.collect(pair, tmp_path / "results")
