"""Trainings with the Lightning callback, for its tests."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import missing_operators  # noqa: F401  # in second processes too: Lightning imports torchvision
import torch_srelu as ts

pl = pytest.importorskip("lightning.pytorch")

from torch_srelu.integrations.lightning import AdaptiveInitCallback  # noqa: E402

# Of Lightning's own code, and its advice about loaders and loggers.
MARKS = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
]
QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}


def fit(module, loader, callback, epochs, path, ckpt=None, **options):
    trainer = pl.Trainer(
        max_epochs=epochs, callbacks=callback, default_root_dir=path, **QUIET, **options
    )
    trainer.fit(module, loader, ckpt_path=ckpt, weights_only=True if ckpt else None)
    return trainer


def ended_frozen():
    """A training that ends before its switch says so."""
    return pytest.warns(UserWarning, match="ended with SReLU still frozen.* make epoch smaller")


def units(module):
    return [m for m in module.modules() if isinstance(m, ts.SReLU)]


class Recording(AdaptiveInitCallback):
    """Records t_r at the start of every epoch, before and after the callback."""

    def __init__(self, epoch, **options):
        super().__init__(epoch, **options)
        self.seen = []

    def on_train_epoch_start(self, trainer, pl_module):
        before = [unit.t_r.clone() for unit in units(pl_module)]
        frozen = [unit.frozen for unit in units(pl_module)]
        super().on_train_epoch_start(trainer, pl_module)
        self.seen.append((before, frozen, [unit.t_r.clone() for unit in units(pl_module)]))


class Recorder(pl.LightningModule):
    """Its unit gets the batch itself; training_step records the batches of every epoch."""

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


def numbers(count=40, **options):
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(count))
    return DataLoader(TensorDataset(x, torch.zeros(count)), 4, **options)
