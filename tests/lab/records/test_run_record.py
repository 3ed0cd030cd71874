"""Records are read as they were written, and never overwritten."""

import gzip
import json
import resource
import zipfile

import pytest
import torch

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.records import run_record
from torch_srelu.lab.records.collect_env import environment
from torch_srelu.lab.records.history import PROBABILITIES, History, Metrics
from torch_srelu.lab.records.record_format import RecordError
from torch_srelu.lab.util import files

RUN = recipe("digits", "srelu", seed=3, epochs=3)
HERE = environment(torch.device("cpu"))
RESULT = {"status": "finished", "test_error": 0.1, "epochs": 3, "seconds": 0.5}
DEAD = RESULT | {"status": "dead", "test_error": None}


def history(epochs: int = 2) -> History:
    draw = torch.Generator().manual_seed(0)
    made = History()
    for epoch in range(1, epochs + 1):
        error = None if epoch == 1 else 1 / 7
        metrics = Metrics(epoch, 0.1 / 3, 2 / epoch, 0.5, 1e-17, 0.25, error, "frozen")
        quantiles = torch.rand(len(PROBABILITIES), generator=draw)
        parameters = torch.rand(4, 5, generator=draw)
        seen = [{"conv1": t} for t in (parameters, quantiles, quantiles.mean(), parameters.std())]
        made.add(metrics, *seen)
    return made


def test_a_record_is_read_as_it_was_written(tmp_path):
    folder = run_record.create(tmp_path, RUN, HERE).folder
    made, predicted = history(), torch.arange(10) % 7
    run_record.write_history(folder, made)
    run_record.write_predictions(folder, predicted, predicted.flip(0))
    run_record.write_run(folder, RUN, HERE, RESULT)
    record = run_record.load(folder)
    assert record.run == RUN
    assert record.environment == HERE
    assert record.result == RESULT
    assert record.metrics == made.metrics  # every digit of every float
    assert torch.equal(record.parameters()["conv1"], torch.stack(made.parameters["conv1"]))
    assert torch.equal(record.inputs().quantiles["conv1"], torch.stack(made.quantiles["conv1"]))
    assert torch.equal(record.inputs().magnitude["conv1"], torch.stack(made.magnitude["conv1"]))
    assert torch.equal(record.weights()["conv1"], torch.stack(made.weights["conv1"]))
    assert record.inputs().probabilities.tolist() == list(PROBABILITIES)
    assert torch.equal(record.predictions(), predicted.to(torch.uint8))
    assert torch.equal(record.labels(), predicted.flip(0).to(torch.uint8))


def test_a_history_survives_its_checkpoint():
    made = history()
    again = History.from_state_dict(made.state_dict())
    again.add(made.metrics[-1], {"conv1": torch.ones(4, 5)}, {}, {}, {})
    assert again.metrics[:2] == made.metrics
    assert again.series("parameters")["conv1"].shape == (3, 4, 5)


def test_the_environment_says_where_and_with_what():
    assert HERE["versions"]["torch"] == torch.__version__
    assert HERE["hardware"]
    assert json.loads(json.dumps(HERE)) == HERE


def test_folders_sort_by_time_and_name_the_run(tmp_path):
    first = run_record.create(tmp_path, RUN, HERE).folder
    second = run_record.create(tmp_path, recipe("digits", "relu", seed=0), HERE).folder
    assert first.name.endswith(f"-digits-srelu-s3-{RUN.key()}")
    (tmp_path / "report.html").touch()
    (tmp_path / "notes").mkdir()
    found = [r.folder for r in run_record.find(tmp_path)]
    assert sorted(found) == found
    assert set(found) == {first, second}
    assert run_record.find(tmp_path / "nowhere") == []


def test_nothing_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr("time.gmtime", lambda *_: (2026, 1, 2, 3, 4, 5, 4, 2, 0))
    folder = run_record.create(tmp_path, RUN, HERE).folder
    before = (folder / "run.json").read_bytes()
    with pytest.raises(FileExistsError):
        run_record.create(tmp_path, RUN, HERE)
    assert (folder / "run.json").read_bytes() == before


def test_a_full_disk_leaves_no_folder_without_a_run(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            run_record.create(tmp_path, RUN, HERE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_finished_and_unfinished_runs_are_told_apart(tmp_path):
    other = recipe("digits", "srelu", seed=4, epochs=3)
    folder = run_record.create(tmp_path, RUN, HERE).folder
    assert run_record.finished(tmp_path, RUN) is None
    assert run_record.unfinished(tmp_path, other) is None
    found = run_record.unfinished(tmp_path, RUN)
    assert found is not None
    assert found.folder == folder
    run_record.write_history(folder, history())
    run_record.write_run(folder, RUN, HERE, DEAD)
    assert run_record.unfinished(tmp_path, RUN) is None
    done = run_record.finished(tmp_path, RUN)
    assert done is not None
    assert done.result == DEAD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has format 2, this torch_srelu reads format 1"),
        ({"run": {"dataset": "digits"}}, "does not describe a run"),
        ({"run": RUN.to_dict() | {"colour": "red"}}, "unknown field of a run 'colour'"),
    ],
)
def test_records_of_another_version_are_refused(tmp_path, change, message):
    folder = run_record.create(tmp_path, RUN, HERE).folder
    plain = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(plain | change))
    with pytest.raises(RecordError, match=message):
        run_record.find(tmp_path)


def test_damaged_records_say_which_file(tmp_path):
    folder = run_record.create(tmp_path, RUN, HERE).folder
    with pytest.raises(RecordError, match="when a run has finished"):
        run_record.load(folder).predictions()
    run_record.write_history(folder, history())
    run_record.write_predictions(folder, torch.zeros(600), torch.zeros(600))
    record = run_record.load(folder)
    for name, read in (
        ("inputs.safetensors", record.inputs),
        ("parameters.safetensors", record.parameters),
        ("weights.safetensors", record.weights),
        ("predictions.gz", record.predictions),
    ):
        path = folder / name
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(RecordError, match=f"{name} is damaged"):
            read()
    (folder / "metrics.csv").write_text("epoch,lr\n1,0.1\n")
    with pytest.raises(RecordError, match=r"metrics.csv is damaged"):
        run_record.load(folder)
    (folder / "run.json").write_text('{"format": 1')
    with pytest.raises(RecordError, match=r"run.json is damaged.*move the record away"):
        run_record.load(folder)
    with pytest.raises(RecordError, match=r"has no run\.json"):
        run_record.load(tmp_path)


@pytest.mark.parametrize("environment", [None, ["a machine"]])
def test_impossible_environments_are_damage(tmp_path, environment):
    folder = run_record.create(tmp_path, RUN, HERE).folder
    plain = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**plain, "environment": environment}))
    with pytest.raises(RecordError, match=r"run.json is damaged \(its environment is"):
        run_record.load(folder)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("{}", "it does not say which format it has"),
        ("[1]", "it does not say which format it has"),
        ('{"format": 1}', "it has no run"),
    ],
)
def test_missing_fields_of_a_run_json_are_named(tmp_path, written, why):
    folder = run_record.create(tmp_path, RUN, HERE).folder
    (folder / "run.json").write_text(written)
    with pytest.raises(RecordError, match=rf"run.json is damaged \({why}\): restore it, or move"):
        run_record.load(folder)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "it is missing"),
        (b"", "it has no epochs"),
        (bytes(600), "it has no epochs"),
        (",".join(Metrics._fields).encode(), "it has no epochs"),
    ],
)
def test_a_run_that_has_ended_has_metrics(tmp_path, content, why):
    folder = run_record.create(tmp_path, RUN, HERE).folder
    path = folder / "metrics.csv"
    if content is not None:
        path.write_bytes(content)
    assert run_record.load(folder).metrics == []  # it has only begun
    run_record.write_run(folder, RUN, HERE, RESULT)
    with pytest.raises(
        RecordError, match=rf"metrics.csv is damaged \({why}\): restore it, or move"
    ):
        run_record.load(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"test_error": 7}, r"test_error is 7, not a share in \[0, 1\]"),
        ({"test_error": -0.1}, "test_error is -0.1"),
        ({"test_error": "0.1"}, "test_error is '0.1'"),
        ({"test_error": True}, "test_error is True"),
        ({"test_error": None}, "test_error is None, but the run has finished"),
        ({"ema_test_error": 1.5}, "ema_test_error is 1.5"),
        ({"train_error": 2}, "train_error is 2"),
        ({"test_loss": -1}, "test_loss is -1"),
        ({"status": "won"}, "status is 'won'"),
        ({"epochs": 4}, "epochs is 4, of a run of 3"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"seconds": -1}, "seconds is -1"),
        ({"adapt_seconds": None}, "adapt_seconds is None"),
    ],
)
def test_impossible_results_are_damage(tmp_path, change, why):
    folder = run_record.create(tmp_path, RUN, HERE).folder
    run_record.write_history(folder, history())
    for result in (RESULT, DEAD):
        run_record.write_run(folder, RUN, HERE, result)
        run_record.load(folder)
    run_record.write_run(folder, RUN, HERE, RESULT | change)
    with pytest.raises(RecordError, match=rf"run.json is damaged \({why}.*\): restore it, or move"):
        run_record.load(folder)


@pytest.mark.parametrize("name", RESULT)
def test_a_result_without_a_field_is_damage(tmp_path, name):
    folder = run_record.create(tmp_path, RUN, HERE).folder
    run_record.write_history(folder, history())
    part = {key: value for key, value in RESULT.items() if key != name}
    run_record.write_run(folder, RUN, HERE, part)
    with pytest.raises(RecordError, match=rf"run.json is damaged \(its result has no {name}\)"):
        run_record.load(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"train_error": 1.5}, "epoch 2: train_error is 1.5"),
        ({"val_error": -1.0}, "epoch 2: val_error is -1.0"),
        ({"seconds": -1.0}, "epoch 2: seconds is -1.0"),
    ],
)
def test_impossible_metrics_are_damage(tmp_path, change, why):
    folder = run_record.create(tmp_path, RUN, HERE).folder
    made = history()
    made.metrics[-1] = made.metrics[-1]._replace(**change)
    run_record.write_history(folder, made)
    with pytest.raises(RecordError, match=rf"metrics.csv is damaged \({why}"):
        run_record.load(folder)


@pytest.mark.parametrize("name", ["predictions", "labels"])
@pytest.mark.parametrize("content", [b"", bytes(600), gzip.compress(b"", mtime=0)])
def test_missing_classes_are_damage(tmp_path, name, content):
    folder = run_record.create(tmp_path, RUN, HERE).folder
    (folder / f"{name}.gz").write_bytes(content)
    with pytest.raises(RecordError, match=rf"{name}.gz is damaged \(.+\): restore it, or move"):
        getattr(run_record.load(folder), name)()


def test_a_full_disk_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "file"
    files.write(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # no file may grow beyond this
    try:
        with pytest.raises(OSError, match="File too large"):
            files.write(path, bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_other_archives_are_passed_over(tmp_path):
    with zipfile.ZipFile(tmp_path / "holidays.zip", "w") as archive:
        archive.writestr("beach.txt", "sun")
    (tmp_path / "folder.zip").mkdir()
    assert run_record.find(tmp_path) == []
