"""The callback for the Trainer of transformers."""

import json

import pytest
import torch
import torch.nn.functional as F
from switching import assert_frozen_then_set_then_learned
from torch import nn
from torch.utils.data import Dataset

import torch_srelu as ts
from small_networks import units

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
vision = pytest.importorskip("torchvision.models")
datasets = pytest.importorskip("sklearn.datasets")

from torch_srelu.integrations.transformers import AdaptiveInitCallback  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


class Digits(Dataset):
    """Real images of ten classes, as the Trainer wants them."""

    def __init__(self, count):
        images, labels = datasets.load_digits(return_X_y=True)
        x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8)[:count] / 16
        self.x, self.labels = x.repeat(1, 3, 2, 2), torch.tensor(labels)[:count]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.labels[index]}


class Classifier(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = ts.convert(net)

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))


def trainer_for(model, callback, path, epochs, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(path),
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=0.002,
        weight_decay=0.01,
        logging_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        **{"save_strategy": "no", **options},
    )
    return transformers.Trainer(model, arguments, train_dataset=Digits(128), callbacks=[callback])


class Recording(AdaptiveInitCallback):
    """Records t_r and frozen at the start of every epoch, and t_r after the callback."""

    def __init__(self, epoch):
        super().__init__(epoch)
        self.seen = []

    def on_epoch_begin(self, args, state, control, **kwargs):
        model = kwargs["model"]
        before = [unit.t_r.detach().clone() for unit in units(model).values()]
        frozen = [unit.frozen for unit in units(model).values()]
        super().on_epoch_begin(args, state, control, **kwargs)
        self.seen.append(
            (before, frozen, [unit.t_r.detach().clone() for unit in units(model).values()])
        )


def test_resnet18_on_real_images_is_frozen_then_adapted_then_trained(tmp_path):
    torch.manual_seed(0)
    model = Classifier(vision.resnet18(num_classes=10))
    callback = Recording(epoch=1)
    trainer = trainer_for(model, callback, tmp_path, 3)
    trainer.train()
    assert_frozen_then_set_then_learned(callback.seen)
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert losses[-1] < losses[0] / 2
    ours = {p for unit in units(model).values() for p in unit.parameters()}
    for group in trainer.optimizer.param_groups:
        assert not (group["weight_decay"] and any(p in ours for p in group["params"]))


def checkpoints(path):
    """What a Trainer has saved, oldest first."""
    return sorted(path.glob("checkpoint-*"), key=lambda p: int(p.name[11:]))


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_run_resumed_before_at_and_after_the_switch_is_the_same_run(epoch, tmp_path):
    whole = Classifier(small())
    trainer_for(whole, AdaptiveInitCallback(2), tmp_path, 4, save_strategy="epoch").train()
    checkpoint = checkpoints(tmp_path)[epoch - 1]
    resumed = Classifier(small())
    trainer = trainer_for(resumed, AdaptiveInitCallback(2), tmp_path, 4)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_run_resumed_late_in_a_frozen_epoch_still_ends_it_frozen(tmp_path):
    """The Trainer begins a resumed epoch with a fraction of it done: that is no whole epoch."""
    whole = Classifier(small())
    often = {"save_strategy": "steps", "save_steps": 1}
    trainer_for(whole, AdaptiveInitCallback(2), tmp_path, 3, **often).train()

    def epochs_done(checkpoint):
        return json.loads((checkpoint / "trainer_state.json").read_text())["epoch"]

    late = [c for c in tmp_path.glob("checkpoint-*") if 1.5 < epochs_done(c) < 2]
    assert late
    resumed = Classifier(small())
    trainer = trainer_for(resumed, AdaptiveInitCallback(2), tmp_path, 3)
    trainer.train(resume_from_checkpoint=str(late[0]))
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_second_training_goes_on(tmp_path):
    model, callback = Classifier(small()), Recording(epoch=1)
    trainer = trainer_for(model, callback, tmp_path, 2)
    trainer.train()
    (t_r,) = (unit.t_r.detach().clone() for unit in units(model).values())
    callback.seen.clear()
    trainer.train()
    for before, frozen, after in callback.seen:
        assert not any(frozen)
        assert torch.equal(before[0], after[0])  # not measured again
    assert torch.equal(callback.seen[0][0][0], t_r)
    assert callback.init is not None
    assert callback.init.adapted


def test_a_trainer_resumes_its_own_checkpoints(tmp_path):
    """It keeps model and optimizer, and so the groups and the freeze of the training before."""
    model = Classifier(small())
    trainer = trainer_for(model, AdaptiveInitCallback(2), tmp_path, 4, save_strategy="epoch")
    trainer.train()
    ended = [p.detach().clone() for p in model.parameters()]
    for epoch in (3, 2, 1):  # each time the later ones are saved anew
        trainer.train(resume_from_checkpoint=str(checkpoints(tmp_path)[epoch - 1]))
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), ended, strict=True))
    trainer.args.num_train_epochs = 2
    with pytest.warns(UserWarning, match="ended with SReLU still frozen.* make epoch smaller"):
        trainer.train(resume_from_checkpoint=str(checkpoints(tmp_path)[0]))
    trainer.args.num_train_epochs = 4
    trainer.train(resume_from_checkpoint=str(checkpoints(tmp_path)[2]))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), ended, strict=True))


def test_what_a_second_training_saved_is_resumed(tmp_path):
    def trainer_of(model):
        return trainer_for(model, AdaptiveInitCallback(1), tmp_path, 3, save_strategy="epoch")

    twice, resumed = Classifier(small()), Classifier(small())
    trainer = trainer_of(twice)
    trainer.train()
    trainer.train()
    trainer_of(resumed).train(resume_from_checkpoint=str(checkpoints(tmp_path)[1]))
    for a, b in zip(twice.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


class NoisyDigits(Digits):
    """Other images each time they are read."""

    def __getitem__(self, index):
        item = super().__getitem__(index)
        return {**item, "x": item["x"] + torch.randn_like(item["x"])}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # DataLoader forks, threads or not
def test_persistent_workers_are_replayed_and_go_on(tmp_path):
    workers = {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}
    callback = AdaptiveInitCallback(1)
    trainer = trainer_for(Classifier(small()), callback, tmp_path, 3, **workers)
    trainer.train_dataset = NoisyDigits(128)
    trainer.train()
    assert callback.init is not None
    assert callback.init.adapted
    assert trainer.state.global_step == 12


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="number of frozen epochs"):
        AdaptiveInitCallback(-1)
    model = Classifier(small())
    model.net = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    with pytest.raises(ValueError, match="has no SReLU"):
        trainer_for(model, AdaptiveInitCallback(1), tmp_path, 1).train()
