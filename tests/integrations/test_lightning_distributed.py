"""The Lightning callback in two real processes."""

import copy
import os

import pytest
import torch
import torch.nn.functional as F
from lightning_trainings import QUIET
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torch_srelu as ts
from two_processes import run_in_two_processes

pl = pytest.importorskip("lightning.pytorch")

from torch_srelu.integrations.lightning import AdaptiveInitCallback  # noqa: E402


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.BatchNorm1d(3), ts.SReLU(3), nn.Linear(3, 2))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Recording(AdaptiveInitCallback):
    """Keeps the norm of this process as the last epoch found it, and what ``t_r`` became then."""

    def on_train_epoch_start(self, trainer, pl_module):
        self.norm = copy.deepcopy(pl_module.net[0]).eval()
        super().on_train_epoch_start(trainer, pl_module)
        self.t_r = pl_module.net[1].t_r.detach().clone()


@pytest.mark.slow
def test_all_processes_measure_the_network_of_the_first(tmp_path):
    run_in_two_processes(_fit, tmp_path)


def _fit(rank, group):
    os.environ["LOCAL_RANK"] = str(rank)  # to Lightning: this process was started by another
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 3, generator=generator) + 4 * (torch.arange(32) % 2)[:, None]
    callback = Recording(epoch=1)
    trainer = pl.Trainer(max_epochs=2, devices=2, strategy="ddp", callbacks=callback, **QUIET)
    # Lightning gives each process every second sample, and these are unlike.
    trainer.fit(Classifier(), DataLoader(TensorDataset(x, torch.arange(32) % 2), 8))
    norms: list = [None, None]
    torch.distributed.all_gather_object(norms, callback.norm)
    assert not torch.equal(norms[0].running_mean, norms[1].running_mean)
    values = norms[0](x).sort(0).values
    assert torch.equal(callback.t_r, values[-(-9 * len(values) // 10) - 1])
