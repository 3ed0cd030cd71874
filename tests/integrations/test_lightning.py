"""The Lightning callback."""

import contextlib
import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import torch_srelu as ts

pl = pytest.importorskip("lightning.pytorch")
vision = pytest.importorskip("torchvision.models")
datasets = pytest.importorskip("sklearn.datasets")

from lightning.pytorch.utilities import CombinedLoader  # noqa: E402

from torch_srelu.integrations.lightning import AdaptiveInitCallback  # noqa: E402

# Of Lightning's own code, and its advice about loaders and loggers.
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
]


@pytest.fixture(scope="module")
def digits():
    """Real images, 8x8 as they come, of ten classes."""
    images, labels = datasets.load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8)[:128] / 16
    return TensorDataset(x.repeat(1, 3, 2, 2), torch.tensor(labels)[:128])


class Classifier(pl.LightningModule):
    def __init__(self, net=None):
        super().__init__()
        torch.manual_seed(0)
        self.net = ts.convert(net or vision.resnet18(num_classes=10))
        self.losses = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        return [optimizer], [schedule]


def fit(module, loader, callback, epochs, path, ckpt=None, **options):
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=callback,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=path,
        **options,
    )
    trainer.fit(module, loader, ckpt_path=ckpt, weights_only=True if ckpt else None)
    return trainer


def ended_frozen():
    """A training that ends before its switch says so."""
    return pytest.warns(UserWarning, match="ended with SReLU still frozen.* make epoch smaller")


def units(module):
    return [m for m in module.modules() if isinstance(m, ts.SReLU)]


def small():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1568, 10)
    )


class Watch(AdaptiveInitCallback):
    """Remembers t_r as every epoch found it, before and after the callback."""

    def __init__(self, epoch, **options):
        super().__init__(epoch, **options)
        self.seen = []

    def on_train_epoch_start(self, trainer, pl_module):
        before = [unit.t_r.clone() for unit in units(pl_module)]
        frozen = [unit.frozen for unit in units(pl_module)]
        super().on_train_epoch_start(trainer, pl_module)
        self.seen.append((before, frozen, [unit.t_r.clone() for unit in units(pl_module)]))


def test_resnet18_on_real_images_is_frozen_then_adapted_then_trained(digits, tmp_path):
    module, callback = Classifier(), Watch(epoch=1)
    trainer = fit(module, DataLoader(digits, 32, shuffle=True), callback, 3, tmp_path)
    first, second, third = callback.seen
    assert all(first[1])
    assert all(torch.equal(t, torch.ones_like(t)) for t in second[0])  # did not move while frozen
    assert all((t != 1).all() for t in second[2])  # set from the data
    assert not any(third[1])
    assert all(not torch.equal(a, b) for a, b in zip(second[2], third[0], strict=True))  # learned
    steps = len(module.losses) // 3
    assert sum(module.losses[-steps:]) < sum(module.losses[:steps]) / 2
    ours = {p for unit in units(module) for p in unit.parameters()}
    for group in trainer.optimizers[0].param_groups:
        assert all((p in ours) == (group["weight_decay"] == 0) for p in group["params"])
    assert callback.init is not None
    assert len(callback.init.summary().splitlines()) == 2 + len(units(module))


@pytest.mark.parametrize("saved_after", [1, 2, 3])
def test_a_run_resumed_before_at_and_after_the_switch_is_the_same_run(
    saved_after, digits, tmp_path
):
    batches = DataLoader(digits, 32)  # no order to restore
    whole = Classifier(small())
    fit(whole, batches, AdaptiveInitCallback(2), 4, tmp_path)
    part = Classifier(small())
    with ended_frozen() if saved_after <= 2 else contextlib.nullcontext():
        trainer = fit(part, batches, AdaptiveInitCallback(2), saved_after, tmp_path)
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    resumed = Classifier(small())
    fit(resumed, batches, AdaptiveInitCallback(2), 4, tmp_path, ckpt=tmp_path / "run.ckpt")
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_run_resumed_from_the_last_step_of_the_frozen_phase_adapts_at_once(digits, tmp_path):
    class SavesAtTheLastStep(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if trainer.global_step == 2 * len(trainer.train_dataloader):
                trainer.save_checkpoint(tmp_path / "step.ckpt")

    class Phases(pl.Callback):
        seen = ()

        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            self.seen += (units(module)[0].frozen,)

    batches = DataLoader(digits, 32)
    whole, resumed, phases = Classifier(small()), Classifier(small()), Phases()
    fit(whole, batches, [AdaptiveInitCallback(2), SavesAtTheLastStep()], 4, tmp_path)
    fit(resumed, batches, [AdaptiveInitCallback(2), phases], 4, tmp_path, tmp_path / "step.ckpt")
    assert phases.seen == (False,) * 2 * len(batches)
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


# ---- what adapt reads ----


class Recorder(pl.LightningModule):
    """Its unit gets the batch itself; training_step notes the batches of every epoch."""

    def __init__(self):
        super().__init__()
        self.act, self.head = ts.SReLU(3), torch.nn.Linear(3, 1)
        self.got = {}

    def forward(self, x):
        return self.head(self.act(x))

    def training_step(self, batch, index):
        x = self.input_of(batch)
        self.got.setdefault(self.current_epoch, []).append(x)
        return self(x).square().mean()

    def input_of(self, batch):
        return batch[0]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, weight_decay=0.1)


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


def numbers(count=40, **options):
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(count))
    return DataLoader(TensorDataset(x, torch.zeros(count)), 4, **options)


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
    module, callback = kind(), Watch(epoch=1)
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
    module, callback = Recorder(), Watch(epoch)
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
    module, callback = OfTwo(), Watch(1, forward=run_two)
    fit(module, data, callback, 2, tmp_path)
    assert len(module.got[1]) == {"max_size_cycle": 10, "min_size": 3}[mode]
    assert_adapted_to_what_was_trained_on(module, callback, epoch=1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # DataLoader forks, threads or not
def test_persistent_workers_are_replayed_and_go_on(tmp_path):
    loader = DataLoader(Noisy(), 4, num_workers=1, persistent_workers=True)
    module, callback = Recorder(), Watch(1)
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


def test_a_trial_run_of_one_step_ends_without_a_warning(tmp_path):
    callback = AdaptiveInitCallback(1)
    fit(Recorder(), numbers(), callback, 3, tmp_path, fast_dev_run=True)
    assert callback.init is not None
    assert not callback.init.adapted


# ---- one fit after another ----


def test_a_second_fit_trains_on(tmp_path):
    module, callback = Recorder(), Watch(epoch=1)
    fit(module, numbers(), callback, 2, tmp_path)
    assert callback.init is not None
    summary, t_r = callback.init.summary(), module.act.t_r.clone()
    callback.seen.clear()
    fit(module, numbers(), callback, 2, tmp_path)
    for before, frozen, after in callback.seen:
        assert frozen == [False]
        assert torch.equal(before[0], after[0])  # not measured again
    assert torch.equal(callback.seen[0][0][0], t_r)
    assert not torch.equal(module.act.t_r, t_r)  # learned
    assert callback.init.summary() == summary
    other = Recorder()
    with ended_frozen():
        fit(other, numbers(), callback, 1, tmp_path)
    assert other.act.frozen  # a new module starts at the beginning


def test_a_second_fit_from_a_checkpoint_is_in_its_phase(tmp_path):
    module, callback = Recorder(), Watch(epoch=1)
    with ended_frozen():
        trainer = fit(module, numbers(), callback, 1, tmp_path)
    trainer.save_checkpoint(tmp_path / "frozen.ckpt")
    fit(module, numbers(), callback, 2, tmp_path, ckpt=tmp_path / "frozen.ckpt")
    first = callback.seen[-1]
    assert first[1] == [True]
    assert not module.act.frozen
    fit(module, numbers(), callback, 2, tmp_path)
    assert callback.seen[-1][1] == [False]  # what the checkpoint said is past
    fit(module, numbers(), callback, 2, tmp_path, ckpt=tmp_path / "frozen.ckpt")
    again = callback.seen[-1]
    assert again[1] == [True]
    assert torch.equal(first[2][0], again[2][0])


def test_bad_input(digits, tmp_path):
    with pytest.raises(ValueError, match="number of frozen epochs"):
        AdaptiveInitCallback(-1)

    class Plain(Classifier):
        def __init__(self):
            super().__init__(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
            self.net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 10))

    with pytest.raises(ValueError, match="has no SReLU"):
        fit(Plain(), DataLoader(digits, 32), AdaptiveInitCallback(1), 1, tmp_path)
