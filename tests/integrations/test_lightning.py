"""The Lightning callback."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from lightning_trainings import MARKS, Recorder, Recording, ended_frozen, fit, numbers, units
from switching import assert_frozen_then_set_then_learned
from torch.utils.data import DataLoader, TensorDataset

import torch_srelu as ts

pl = pytest.importorskip("lightning.pytorch")
vision = pytest.importorskip("torchvision.models")
datasets = pytest.importorskip("sklearn.datasets")

from torch_srelu.integrations.lightning import AdaptiveInitCallback  # noqa: E402

pytestmark = MARKS


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


def small():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1568, 10)
    )


def test_resnet18_on_real_images_is_frozen_then_adapted_then_trained(digits, tmp_path):
    module, callback = Classifier(), Recording(epoch=1)
    trainer = fit(module, DataLoader(digits, 32, shuffle=True), callback, 3, tmp_path)
    assert_frozen_then_set_then_learned(callback.seen)
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


def test_a_trial_run_of_one_step_ends_without_a_warning(tmp_path):
    callback = AdaptiveInitCallback(1)
    fit(Recorder(), numbers(), callback, 3, tmp_path, fast_dev_run=True)
    assert callback.init is not None
    assert not callback.init.adapted


# ---- one fit after another ----


def test_a_second_fit_trains_on(tmp_path):
    module, callback = Recorder(), Recording(epoch=1)
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
    module, callback = Recorder(), Recording(epoch=1)
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
