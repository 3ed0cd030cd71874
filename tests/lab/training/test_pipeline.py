"""Photographs train like everything else, kept on the device or streamed to it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from photographs import write_folders

from torch_srelu.lab.config.run import Run
from torch_srelu.lab.data.datasets import DATASETS, DataError
from torch_srelu.lab.data.photographs.photograph_batches import ResidentBatches, StreamedBatches
from torch_srelu.lab.models import network_registry
from torch_srelu.lab.models.layers import normal
from torch_srelu.lab.models.sequential import (
    ConvSpec,
    DenseSpec,
    PoolSpec,
    SequentialSpec,
    average_pool,
)
from torch_srelu.lab.records import checkpoints, run_record
from torch_srelu.lab.runtime.distributed import ProcessGroup
from torch_srelu.lab.training import pipeline
from torch_srelu.lab.training.callbacks import Stopped
from torch_srelu.lab.training.loop import train

CPU = torch.device("cpu")
# Workers are forked; Python 3.12 warns of that in a process with threads, which they do not use.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_folders(root / "imagenette", train=6)
    return root


@pytest.fixture(autouse=True)
def _three_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "imagenette", replace(DATASETS["imagenette"], classes=3))
    layers = (
        PoolSpec(average_pool, 32, 32),
        ConvSpec("conv", 6, 3, padding=1, initializer=normal(0.002)),
        DenseSpec("y", 3, acts=False, initializer=normal(0.01)),
    )
    monkeypatch.setattr(
        network_registry, "NETWORKS", {"small": SequentialSpec(3, 224, 3, layers, threads=1)}
    )


def run_of(activation: str = "srelu", **changes) -> Run:
    decided = {"epochs": 3, "batch": 6, "lr": 3e-4, "freeze": 1 if activation == "srelu" else 0}
    prepared = {"preprocessing": "mean", "augmentation": "crops+flips"}
    return Run(
        dataset="imagenette",
        net="small",
        activation=activation,
        seed=1,
        **(decided | prepared | changes),
    )


def test_kept_and_streamed_are_the_same_training(folder, tmp_path, monkeypatch):
    kept = train(run_of(ema=0.5), tmp_path / "kept", folder, device=CPU)
    monkeypatch.setattr(pipeline, "RESIDENT_BYTES", 0)
    streamed = train(run_of(ema=0.5), tmp_path / "streamed", folder, device=CPU)
    for a, b in zip(kept.metrics, streamed.metrics, strict=True):
        assert a._replace(seconds=0) == b._replace(seconds=0)
    assert {m.phase for m in kept.metrics} == {"frozen", "thawed"}
    assert torch.equal(kept.predictions(), streamed.predictions())
    for layer, values in kept.parameters().items():
        assert torch.equal(values, streamed.parameters()[layer])
    for record in (kept, streamed):
        assert record.result is not None
        assert record.result["test_error"] == 0  # each class has its colour
        assert record.result["test_top5_error"] == 0  # of three classes
        assert "skipped_images" not in record.result


def test_both_kinds_are_really_used(folder, monkeypatch):
    assert isinstance(source(folder).batches, ResidentBatches)
    monkeypatch.setattr(pipeline, "RESIDENT_BYTES", 0)
    assert isinstance(source(folder).batches, StreamedBatches)


def source(folder: Path, **changes) -> pipeline.DataPipeline:
    return pipeline.open_data_pipeline(run_of(**changes), folder, CPU, ProcessGroup())


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_goes_on_in_the_middle_of_an_epoch(folder, tmp_path, monkeypatch, kept):
    if not kept:
        monkeypatch.setattr(pipeline, "RESIDENT_BYTES", 0)
    run = run_of("relu")
    whole = train(run, tmp_path / "whole", folder, device=CPU)
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) == 4  # in the second epoch of three steps

    with pytest.raises(Stopped):
        train(run, tmp_path / "cut", folder, device=CPU, stop=stop)
    (stopped,) = run_record.find(tmp_path / "cut")
    state = checkpoints.load(stopped.folder)
    assert state is not None
    assert (state["epoch"], state["step"]) == (1, 1)
    resumed = train(run, tmp_path / "cut", folder, device=CPU)
    for one, two in zip(resumed.metrics, whole.metrics, strict=True):
        assert one._replace(seconds=0) == two._replace(seconds=0)


@pytest.mark.parametrize("kept", [True, False])
def test_parts_and_validation_share_out_the_images(folder, monkeypatch, kept):
    if not kept:
        monkeypatch.setattr(pipeline, "RESIDENT_BYTES", 0)
    run = run_of("relu", validation=1 / 3)
    whole = pipeline.open_data_pipeline(run, folder, CPU, ProcessGroup())
    held = [len(labels) for _, labels in whole.validation() or ()]
    assert sum(held) == 6
    images = torch.cat(list(whole.local_images()))
    assert images.shape == (12, 3, 224, 224)
    assert torch.equal(torch.cat(list(whole.local_images())), images)  # can be read again
    assert torch.equal(whole.first(5), images[:5])
    for rank in (0, 1):
        whole.group = ProcessGroup(rank, 2)
        assert torch.equal(torch.cat(list(whole.local_images())), images[rank::2])


def test_an_image_that_cannot_be_decoded_is_counted_in_the_result(tmp_path):
    write_folders(tmp_path / "imagenette", train=6)
    (tmp_path / "imagenette/val/n01/0.JPEG").write_bytes(b"no image")
    with pytest.warns(UserWarning, match="val/n01/0.JPEG cannot be decoded"):
        record = train(run_of("relu"), tmp_path / "records", tmp_path, device=CPU)
    assert record.result is not None
    assert record.result["skipped_images"] == 1
    assert len(record.predictions()) == 5


def test_another_number_of_classes_is_refused(folder, monkeypatch):
    monkeypatch.setitem(DATASETS, "imagenette", replace(DATASETS["imagenette"], classes=4))
    layers = (DenseSpec("y", 4, acts=False),)
    monkeypatch.setattr(network_registry, "NETWORKS", {"small": SequentialSpec(3, 224, 4, layers)})
    with pytest.raises(DataError, match=r"imagenette has 4 classes, but .* has 3"):
        source(folder)


def test_photographs_have_their_own_preparation():
    with pytest.raises(ValueError, match="preprocessing 'mean' belongs to photographs"):
        run_of(preprocessing="scale")
    with pytest.raises(ValueError, match=r"augmentation 'crops\+flips' belongs to photographs"):
        run_of(augmentation="flips")


def test_missing_photographs_are_an_error_that_names_their_folder(tmp_path):
    with pytest.raises(DataError, match="name the folder that holds imagenette with --data"):
        source(tmp_path)
