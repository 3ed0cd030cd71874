"""The Lightning callback."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import torch_srelu as ts

pl = pytest.importorskip("lightning.pytorch")
vision = pytest.importorskip("torchvision.models")
datasets = pytest.importorskip("sklearn.datasets")

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
        callbacks=[callback],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=path,
        **options,
    )
    trainer.fit(module, loader, ckpt_path=ckpt, weights_only=True if ckpt else None)
    return trainer


def units(module):
    return [m for m in module.modules() if isinstance(m, ts.SReLU)]


def small():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1568, 10)
    )


class Watch(AdaptiveInitCallback):
    """Remembers t_r as every epoch found it, before and after the callback."""

    def __init__(self, epoch):
        super().__init__(epoch)
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
    trainer = fit(part, batches, AdaptiveInitCallback(2), saved_after, tmp_path)
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    resumed = Classifier(small())
    fit(resumed, batches, AdaptiveInitCallback(2), 4, tmp_path, ckpt=tmp_path / "run.ckpt")
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_bad_input(digits, tmp_path):
    with pytest.raises(ValueError, match="number of frozen epochs"):
        AdaptiveInitCallback(-1)

    class Plain(Classifier):
        def __init__(self):
            super().__init__(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
            self.net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 10))

    with pytest.raises(ValueError, match="has no SReLU"):
        fit(Plain(), DataLoader(digits, 32), AdaptiveInitCallback(1), 1, tmp_path)
