"""What the Lightning callback adapts to: the batches that training gets."""

import math

import pytest
import torch
from lightning_trainings import MARKS, Recorder, Recording, fit, numbers
from torch.utils.data import DataLoader, Dataset, IterableDataset

pl = pytest.importorskip("lightning.pytorch")

from lightning.pytorch.utilities import CombinedLoader  # noqa: E402

from torch_srelu.integrations.lightning import AdaptiveInitCallback  # noqa: E402

pytestmark = MARKS


class HooksOfModule(Recorder):
    def on_before_batch_transfer(self, batch, dataloader_idx):
        return batch[0] + 3, batch[1]

    def on_after_batch_transfer(self, batch, dataloader_idx):
        noise = torch.randn_like(batch[0]) if self.training else 0
        return batch[0] * 100 + noise, batch[1]


class DataModule(pl.LightningDataModule):
    def train_dataloader(self):
        return numbers(shuffle=True)

    def on_before_batch_transfer(self, batch, dataloader_idx):
        return batch[0] + 3, batch[1]

    def on_after_batch_transfer(self, batch, dataloader_idx):
        return batch[0] * 100, batch[1]


class Endless(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(1)
        while True:
            yield torch.randn(3, generator=generator), 0


class Noisy(Dataset):
    """Other numbers each time it is read."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.randn(3), 0


def assert_adapted_to_what_was_trained_on(module, callback, epoch):
    """t_r is the 0.9 quantile, by sorting, of the batches that training_step got in that epoch."""
    x = torch.cat(module.got[epoch])
    (found,) = callback.seen[epoch][2]
    assert torch.equal(found, x.sort(0).values[math.ceil(0.9 * len(x)) - 1])


@pytest.mark.parametrize(
    ("kind", "data", "options"),
    [
        (Recorder, numbers(shuffle=True), {"precision": "64-true"}),
        (HooksOfModule, numbers(shuffle=True), {}),
        (Recorder, DataModule(), {}),
    ],
)
def test_adapt_sees_batches_as_training_does(kind, data, options, tmp_path):
    """Converted and through the hooks, which shuffle and augment by the same random numbers."""
    module, callback = kind(), Recording(epoch=1)
    fit(module, data, callback, 2, tmp_path, **options)
    assert_adapted_to_what_was_trained_on(module, callback, epoch=1)


@pytest.mark.parametrize(
    ("epoch", "loader", "options", "count"),
    [
        (0, DataLoader(Endless(), 4), {"limit_train_batches": 3}, 3),
        (1, DataLoader(Endless(), 4), {"limit_train_batches": 3}, 3),
        (0, numbers(5000), {"fast_dev_run": True}, 1),
        (1, numbers(shuffle=True, generator=torch.Generator()), {"limit_train_batches": 0.5}, 5),
        (1, numbers(), {"overfit_batches": 2}, 2),
    ],
)
def test_adapt_reads_as_much_as_an_epoch_of_training(epoch, loader, options, count, tmp_path):
    module, callback = Recorder(), Recording(epoch)
    fit(module, loader, callback, epoch + 1, tmp_path, **options)
    assert len(module.got[epoch]) == count
    assert_adapted_to_what_was_trained_on(module, callback, epoch)


class OfTwo(Recorder):
    def input_of(self, batch):
        return torch.cat([batch["a"][0], batch["b"][0]])


def run_two(module, batch):
    return module(module.input_of(batch))


@pytest.mark.parametrize("mode", ["max_size_cycle", "min_size"])
def test_several_loaders_are_read_together(mode, tmp_path):
    mine = torch.Generator()
    loaders = {"a": numbers(12), "b": numbers(40, shuffle=True, generator=mine)}
    data = loaders if mode == "max_size_cycle" else CombinedLoader(loaders, mode)
    module, callback = OfTwo(), Recording(1, forward=run_two)
    fit(module, data, callback, 2, tmp_path)
    assert len(module.got[1]) == {"max_size_cycle": 10, "min_size": 3}[mode]
    assert_adapted_to_what_was_trained_on(module, callback, epoch=1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # DataLoader forks, threads or not
def test_persistent_workers_are_replayed_and_go_on(tmp_path):
    loader = DataLoader(Noisy(), 4, num_workers=1, persistent_workers=True)
    module, callback = Recorder(), Recording(1)
    fit(module, loader, callback, 3, tmp_path)
    assert [len(batches) for batches in module.got.values()] == [10, 10, 10]
    assert callback.init is not None
    assert callback.init.adapted


def test_data_that_adapt_cannot_read_is_refused(tmp_path):
    module = OfTwo()
    with pytest.raises(ValueError, match=r"dict of loaders.*forward="):
        fit(module, {"a": numbers(), "b": numbers()}, AdaptiveInitCallback(1), 2, tmp_path)
    assert not module.got  # said before anything was trained
    assert not module.act.frozen
    with pytest.raises(TypeError, match="can be read only once"):
        fit(Recorder(), iter(list(numbers())), AdaptiveInitCallback(0), 1, tmp_path)


def test_a_lightning_without_the_names_that_adapt_needs_is_refused(tmp_path, monkeypatch):
    monkeypatch.delattr(pl.LightningModule, "_on_before_batch_transfer")
    with pytest.raises(RuntimeError, match=r"no OfTwo\._on_before_batch_transfer.*install"):
        fit(OfTwo(), numbers(), AdaptiveInitCallback(0), 1, tmp_path)
