"""Measuring the inputs of units: networks, loaders and errors of all kinds."""

import copy
import io
import math
import random
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from small_networks import batches, convnet, same, sgd, train, units
from torch_srelu import AdaptiveInit, SReLU
from torch_srelu.adaptive.adaptive_init import _units
from torch_srelu.adaptive.quantile_search import ChangedStreamError
from torch_srelu.ops.key_statistics import KeyHistogram

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- batches and networks of all kinds ----


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = SReLU(3)

    def forward(self, left, right):
        return self.act(x=left + right)


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


def test_loaders_of_tensors_tuples_and_dicts():
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    expected = (2 * x).sort(0).values[8]
    ways = [
        ([{"left": x, "right": x}], None),
        ([(x, (x, "label"))], lambda model, batch: model(batch[0], right=batch[1][0])),
        ([Pair(x, x)], lambda model, pair: model(pair.left, pair.right)),
    ]
    for loader, forward in ways:
        model = TwoInputs()
        AdaptiveInit(model, sgd(model)).adapt(loader, forward)
        assert torch.equal(model.act.t_r.detach(), expected)
    for loader in ([2 * x], [(2 * x, None)], [[2 * x]]):
        model = nn.Sequential(SReLU(3))
        AdaptiveInit(model, sgd(model)).adapt(loader)
        assert torch.equal(units(model)["0"].t_r.detach(), expected)


@pytest.mark.parametrize("batch", [{"image": torch.ones(2, 3)}, 5])
def test_a_batch_that_the_network_does_not_take_says_how_it_was_given(batch):
    model = nn.Sequential(SReLU(3))
    with pytest.raises((AttributeError, TypeError)) as caught:
        AdaptiveInit(model, sgd(model)).adapt([batch])
    (note,) = caught.value.__notes__
    assert f"a {type(batch).__name__}" in note
    assert "pass forward=" in note


def test_dim_last_and_channel_shared_units():
    model = nn.Sequential(SReLU(6, dim=-1), SReLU(1))
    x = torch.rand(4, 5, 6, generator=torch.Generator().manual_seed(0))
    AdaptiveInit(model, sgd(model)).adapt([x])
    assert torch.equal(units(model)["0"].t_r.detach(), x.flatten(0, 1).sort(0).values[17])
    assert torch.equal(units(model)["1"].t_r.detach(), x.flatten().sort().values[107:108])


def test_autocast_of_the_caller_holds():
    linear = nn.Linear(8, 4)
    model = nn.Sequential(linear, SReLU(4))
    x = torch.randn(30, 8, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        seen = linear(x)
        AdaptiveInit(model, sgd(model)).adapt([x])
    assert seen.dtype == torch.bfloat16
    assert torch.equal(units(model)["1"].t_r.detach(), seen.float().sort(0).values[26])


def compile_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def compile_part(model: Any) -> nn.Module:
    part: Any = torch.compile(model, backend="eager")
    return nn.Sequential(part)


COMPILED = {
    "whole": lambda model: torch.compile(model, backend="eager"),
    "in place": compile_in_place,
    "a part": compile_part,
}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile's own, when it resumes
@pytest.mark.parametrize("way", COMPILED)
def test_compiled_models_that_have_run(way):
    data = batches((9,))
    plain, inner = convnet(), convnet()
    AdaptiveInit(plain, sgd(plain)).adapt(data)
    compiled, optimizer = COMPILED[way](inner), sgd(inner)
    init = AdaptiveInit(compiled, optimizer)
    compiled.eval()(data[0][0])
    init.adapt(data)
    for name, unit in units(inner).items():
        assert torch.equal(unit.t_r, units(plain)[name].t_r)
        assert f"{'0.' if way == 'a part' else ''}{name} " in init.summary()
    train(compiled, optimizer, data)  # and the compiled code is no longer frozen
    for unit in units(inner).values():
        assert unit.a_r.grad is not None
        assert unit.a_r.grad.any()


def test_modes_and_random_state_are_left_as_they_were():
    model, data = convnet(), batches()
    norm = model.train().get_submodule("3").eval()
    init = AdaptiveInit(model, sgd(model))
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    running = norm.get_buffer("running_mean").clone()
    init.adapt(data, forward=lambda network, batch: network(batch[0] + torch.rand(())))
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(norm.get_buffer("running_mean"), running)


def test_inference_mode_of_the_caller_does_not_matter():
    plain, model, data = convnet(), convnet(), batches()
    AdaptiveInit(plain, sgd(plain)).adapt(data)
    optimizer = sgd(model)
    init = AdaptiveInit(model, optimizer)
    with torch.inference_mode():
        init.adapt(data)
    for name, unit in units(model).items():
        assert torch.equal(unit.t_r, units(plain)[name].t_r)
    train(model, optimizer, data)
    assert all(unit.a_r.grad is not None and unit.a_r.grad.any() for unit in units(model).values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_cuda(dtype):
    x = torch.randn(64, 3, 16, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    model = nn.Sequential(SReLU(3)).cuda()
    AdaptiveInit(model, sgd(model)).adapt(list(x.split(10)))  # batches are moved to the model
    values = x.transpose(0, 1).flatten(1).sort(1).values
    rank = -(-9 * values.shape[1] // 10)
    assert torch.equal(units(model)["0"].t_r.detach().cpu(), values[:, rank - 1].float())


def test_progress_is_shown_on_a_terminal_only(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = {}
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stderr", stream)
        model = nn.Sequential(SReLU(3))
        AdaptiveInit(model, sgd(model)).adapt([torch.rand(5, 3)] * 2)
        shown[type(stream)] = stream.getvalue()
    assert "pass 1: batch 2/2" in shown[Terminal]
    assert shown[io.StringIO] == ""


# ---- bad input ----


def picture(model, optimizer):
    """All that must be as before after an error."""
    return {
        "state": {name: value.clone() for name, value in model.state_dict().items()},
        "modes": [module.training for module in model.modules()],
        "frozen": [unit.frozen for unit in units(model).values()],
        "hooks": [len(module._forward_pre_hooks) for module in model.modules()],
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "random": torch.get_rng_state(),
    }


class Idle(nn.Module):
    """Holds a unit that it never calls."""

    def __init__(self):
        super().__init__()
        self.used, self.idle = SReLU(2), SReLU(2)

    def forward(self, x):
        return self.used(x)


class Broken(nn.Module):
    def forward(self, x):
        raise ZeroDivisionError("broken")


def bad_data():
    good = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    poisoned = good.clone()
    poisoned[3, 1] = math.nan
    endless = good.clone()
    endless[3, 1] = -math.inf
    chain = nn.Sequential(nn.Sequential(SReLU(2)), nn.Linear(2, 2), SReLU(2))
    return {
        "empty": (chain, [], ValueError, "the loader is empty"),
        "iterator": (chain, iter([good]), TypeError, "can be read only once"),
        "generator": (chain, (x for x in [good]), TypeError, "give a DataLoader"),
        "empty batches": (chain, [good[:0]], ValueError, "input of 0.0: no values"),
        "idle unit": (Idle(), [good], ValueError, "input of idle: no values.*evaluation mode"),
        "nan": (chain, [good, poisoned], ValueError, "input of 0.0: NaN or infinity.*diverged"),
        "inf": (chain, [endless], ValueError, "input of 0.0: NaN or infinity"),
        "late nan": (nn.Sequential(chain[1], SReLU(2)), [poisoned], ValueError, "input of 1: NaN"),
        "channels": (
            nn.Sequential(nn.Linear(2, 3), SReLU(2)),
            [good],
            ValueError,
            r"input of 1: expected 2 channels in dim=1.*\(6, 3\)",
        ),
        "wide": (
            nn.Sequential(SReLU(2)),
            [good, good.double()],
            TypeError,
            "input of 0: .*float64.*convert",
        ),
        "broken": (nn.Sequential(SReLU(2), Broken()), [good], ZeroDivisionError, "broken"),
    }


@pytest.mark.parametrize("case", bad_data())
def test_errors_leave_everything_as_it_was(case):
    model, loader, error, message = bad_data()[case]
    model.train()
    next(model.modules()).eval()
    optimizer = sgd(model)
    init = AdaptiveInit(model, optimizer)
    before = picture(model, optimizer)
    with pytest.raises(error, match=message):
        init.adapt(loader)
    assert same(picture(model, optimizer), before)
    assert not init.adapted
    init.adapt([torch.randn(6, 2)], forward=lambda m, x: [u(x) for u in units(m).values()])


def test_data_that_change_from_pass_to_pass_are_caught():
    class OwnGenerator(Dataset):
        generator = torch.Generator().manual_seed(0)

        def __len__(self):
            return 300

        def __getitem__(self, index):
            return torch.randn(3, generator=self.generator)

    class Shrinking:
        size = 300

        def __iter__(self):
            self.size -= 100
            return iter([torch.linspace(0, 1, 3 * self.size).reshape(-1, 3)])

    class Once:
        batches = iter([torch.linspace(0, 1, 900).reshape(-1, 3)])

        def __iter__(self):
            return self.batches

    cases = {
        "saw other values": DataLoader(OwnGenerator(), 50),
        "saw 100 values": Shrinking(),
        "saw 0 values, the first 300.*read only once": Once(),
    }
    for message, loader in cases.items():
        model = nn.Sequential(SReLU(3))
        optimizer = sgd(model)
        init = AdaptiveInit(model, optimizer)
        before = picture(model, optimizer)
        with pytest.raises(ChangedStreamError, match=f"input of 0: pass 2 {message}"):
            init.adapt(loader)
        assert same(picture(model, optimizer), before)


# ---- loaders ----


class Augmented(Dataset):
    """Images disturbed anew each time they are read."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        image = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(index))
        return image * torch.rand(()) + random.random(), index


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # DataLoader forks, threads or not
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_shuffles_and_augments_works_as_it_is(workers):
    loader = DataLoader(Augmented(), 8, shuffle=True, num_workers=workers)
    torch.manual_seed(0)
    random.seed(0)
    values = torch.cat([x for x, _ in loader]).transpose(0, 1).flatten(1).sort(1).values
    next_epoch = torch.cat([x for x, _ in loader])
    torch.manual_seed(0)
    random.seed(0)
    model = nn.Sequential(SReLU(3))
    AdaptiveInit(model, sgd(model)).adapt(loader)
    assert torch.equal(units(model)["0"].t_r.detach(), values[:, 576 - 1])
    # adapt drew no random numbers: the epochs that follow are those of a run without it.
    _, following = (torch.cat([x for x, _ in loader]) for _ in range(2))
    assert torch.equal(following, next_epoch)


def test_memory_is_bounded_for_many_channels():
    widths = [1024] * 7 + [112]  # 7,280 channels, as many as GoogLeNet's activations have
    model = nn.ModuleList(SReLU(width) for width in widths)
    init = AdaptiveInit(model, sgd(model))
    searches = init._searches(_units(model), None)
    for search in searches.values():
        search.start()
    tables = [search._statistics.target for search in searches.values()]
    counts = [table.counts for table in tables if isinstance(table, KeyHistogram)]
    assert sum(len(c) for c in counts) == 7280
    assert sum(c.nbytes for c in counts) < 256 * 10**6
