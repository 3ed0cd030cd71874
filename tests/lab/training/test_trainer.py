"""Data and network of a run, and what training does to them."""

import math

import pytest
import torch

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.data.tensors import load
from torch_srelu.lab.models.activation_registry import ACTIVATIONS
from torch_srelu.lab.runtime.distributed import ProcessGroup
from torch_srelu.lab.training.callbacks import Progress
from torch_srelu.lab.training.loop import fit
from torch_srelu.lab.training.trainer import Trainer

CPU = torch.device("cpu")


def tiny(activation: str = "srelu", **changes):
    return recipe("digits", activation, 1, **({"epochs": 3, "batch": 64} | changes))


def test_equal_seeds_mean_equal_weights_and_batches_for_every_activation():
    def start(activation: str) -> tuple[list, list]:
        run = tiny(activation, augmentation="flips")
        made = Trainer(run, None, CPU, ProcessGroup(), capture=False)
        weights = [p for _, b in made.net.layers() for p in b.conv.parameters()]
        batches = []
        for epoch in range(2):
            made.batches.begin(epoch)
            batches += [made.batches.next() for _ in range(made.steps)]
        return weights, [t for pair in batches for t in pair]

    weights, batches = start("relu")
    for name in (name for name, act in ACTIVATIONS.items() if not act.joins):
        other_weights, other_batches = start(name)
        assert all(map(torch.equal, other_weights, weights)), name
        assert all(map(torch.equal, other_batches, batches)), name


def test_an_epoch_visits_images_once_and_flips_half_of_them():
    run = tiny("relu", augmentation="flips")
    batches = Trainer(run, None, CPU, ProcessGroup(), capture=False).batches
    batches.begin(epoch=5)
    visited = batches.order.flatten()
    assert len(visited.unique()) == len(visited) == batches.steps * run.batch
    x, y = batches.next()
    images, flipped = batches.images[visited[:64]], batches.images[visited[:64]].flip(3)
    straight = (x == images).flatten(1).all(1)
    assert torch.equal(straight | (x == flipped).flatten(1).all(1), torch.ones(64).bool())
    assert 10 < straight.sum() < 54
    assert torch.equal(y, batches.labels[visited[:64]])


def test_validation_images_take_no_part_in_training():
    whole = load("digits", "train")
    made = Trainer(tiny("relu", validation=0.2), None, CPU, ProcessGroup(), capture=False)
    held = [images for images, _ in made.source.validation() or ()]
    images = torch.cat([made.batches.images, *held])
    assert len(images) == len(whole.images)
    assert len(images.flatten(1).unique(dim=0)) == len(whole.images.flatten(1).unique(dim=0))
    assert sum(map(len, held)) == pytest.approx(0.2 * len(images), abs=5)


def test_bf16_trains_in_bf16(tmp_path):
    kinds = set()
    made = Trainer(tiny(precision="bf16"), None, CPU, ProcessGroup(), capture=False)
    for _, block in made.net.layers():
        block.act.register_forward_hook(lambda _m, _i, out: kinds.add(out.dtype))
    fit(made, tmp_path)
    assert kinds == {torch.bfloat16}
    assert all(math.isfinite(m.train_loss) for m in made.history.metrics)
    assert all(p.dtype == torch.float32 for p in made.net.parameters())


def test_the_average_is_that_of_all_weights_seen(tmp_path):
    made = Trainer(tiny("prelu", ema=0.75), None, CPU, ProcessGroup(), capture=False)
    expected = [p.detach().double() for p in made.net.parameters()]

    def average(_: Progress) -> None:
        for i, p in enumerate(made.net.parameters()):
            expected[i] = 0.75 * expected[i] + 0.25 * p.detach().double()

    fit(made, tmp_path, [average])
    for found, value in zip(made.training_step.averaged, expected, strict=True):
        torch.testing.assert_close(found.double(), value, rtol=1e-5, atol=1e-6)
