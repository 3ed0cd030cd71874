"""convert: the same network, with SReLU in it."""

import copy
import functools
import inspect
import itertools
import pickle
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torch_srelu as ts
from torch_srelu.convert.units import InPlaceSReLU

vision = pytest.importorskip("torchvision.models")
timm = pytest.importorskip("timm")

RECTIFIERS = {"relu", "relu_", "leaky_relu", "leaky_relu_", "_prelu_kernel", "prelu", "hardtanh",
              "hardtanh_"}  # fmt: skip


class Rectifiers(TorchDispatchMode):
    """Counts the rectifiers that run below Python: what convert must find, by another way."""

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))

    def total(self):
        return sum(self.count[name] for name in RECTIFIERS)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The tensors are so small that threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(net, x):
    """All outputs of the network and how many rectifiers ran."""
    torch.manual_seed(0)
    with Rectifiers() as rectifiers:
        out = net(x)
    leaves = tree_leaves(tuple(out) if isinstance(out, tuple) else out)
    return leaves, rectifiers.total()


def units(net):
    return [m for m in net.modules() if isinstance(m, ts.SReLU)]


def sizes(net, *paths):
    """Channels and channel dimension of these units."""
    found = [net.get_submodule(path) for path in paths]
    return [(unit.num_channels, unit.dim) for unit in found]


def loss(outputs):
    return torch.stack([t.square().mean() for t in outputs]).sum()


def assert_same(before, after):
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b)


def assert_converted(net, x, example=None, **options):
    """Converts, and checks that outputs and gradients are those of the original."""
    original = copy.deepcopy(net)
    assert ts.convert(net, example, **options) is net
    before, count = run(original, x.clone())
    after, rest = run(net, x.clone())
    assert_same(before, after)
    assert rest == 0
    assert count > 0
    loss(before).backward()
    loss(after).backward()
    new = dict(net.named_parameters())
    for name, p in original.named_parameters():
        if p.grad is not None and name in new:
            if new[name].grad is None:
                # The weight of a functional PReLU: its gradient moved into the unit.
                (unit,) = units(net)
                torch.testing.assert_close(p.grad, unit.a_l.grad)
            else:
                assert torch.equal(p.grad, new[name].grad)
    return count


# ---- networks that everybody uses ----

ZOO = {
    "resnet18": {},
    "resnet50": {},
    "densenet121": {},
    "vgg16": {},
    "mobilenet_v2": {},
    "googlenet": {"init_weights": False},
}
FAMILIES = ("resnet26d", "regnetx_002", "hrnet_w18_small")


def build(name):
    torch.manual_seed(0)
    if name in ZOO:
        return getattr(vision, name)(num_classes=10, **ZOO[name])
    return timm.create_model(name, num_classes=10)


@pytest.mark.parametrize("name", [*ZOO, *FAMILIES])
def test_a_known_network_is_the_same_and_wholly_converted(name):
    net = build(name).eval()
    x = torch.randn(2, 3, 64, 64)
    keys = list(net.state_dict())
    tree = {path: type(m) for path, m in net.named_modules() if type(m) is not nn.ReLU}
    with torch.no_grad():
        before, _ = run(net, x)
    trained = copy.deepcopy(net).train()

    ts.convert(net)

    with torch.no_grad():
        after, rest = run(net, x)
    assert_same(before, after)
    assert rest == 0
    assert not net.training
    assert [key for key in net.state_dict() if key in set(keys)] == keys
    modules = dict(net.named_modules())
    assert all(isinstance(modules[path], (cls, ts.SReLU)) for path, cls in tree.items())
    assert not ts.summary(net).left
    # in training mode: other branches, the same outputs, and a gradient for every new parameter
    before, count = run(trained, x)
    after, rest = run(net.train(), x)
    assert_same(before, after)
    assert rest == 0
    assert count == len(units(net))
    loss(after).backward()
    assert all(p.grad is not None for unit in units(net) for p in unit.parameters())


def test_googlenet_has_61_sites_with_auxiliary_heads_and_57_without():
    with_heads = ts.convert(vision.googlenet(init_weights=False))
    without = ts.convert(vision.googlenet(init_weights=False, aux_logits=False))
    assert len(units(with_heads)) == 61
    assert len(units(without)) == 57
    assert sum(unit.num_channels for unit in units(without)) == 7280  # the paper's GoogLeNet
    out = with_heads.train()(torch.randn(2, 3, 64, 64))
    assert out.aux_logits1 is not None
    assert out.aux_logits2 is not None


def test_hooks_on_inner_and_on_replaced_modules_still_fire():
    net = vision.resnet18()
    fired = Counter()
    for path in ("layer1.0", "layer1.0.relu", "layer2.1.conv1"):
        net.get_submodule(path).register_forward_hook(
            lambda module, args, out, path=path: fired.update([path])
        )
    handle = net.relu.register_forward_pre_hook(lambda module, args: fired.update(["stem"]))
    ts.convert(net)
    assert not fired  # converting shows in no hook
    net(torch.randn(2, 3, 32, 32))
    # one ReLU object is called twice in a block
    assert fired == {"layer1.0": 1, "layer1.0.relu": 2, "layer2.1.conv1": 1, "stem": 1}
    handle.remove()
    net(torch.randn(2, 3, 32, 32))
    assert fired["stem"] == 1


# ---- every way to call an activation ----


class Forms(nn.Module):
    """A linear layer and one call of an activation, written as the test says."""

    def __init__(self, call):
        super().__init__()
        self.linear = nn.Linear(6, 5)
        self.weight = nn.Parameter(torch.rand(5))
        self.act = F.relu
        self.partial = functools.partial(F.leaky_relu, negative_slope=0.3)
        self.unregistered = [nn.Hardtanh(-0.5, 0.4)]
        self.call = call

    def forward(self, x):
        x = self.linear(x)
        if self.call == "F.relu":
            return F.relu(x)
        if self.call == "F.relu inplace":
            return F.relu(x, inplace=True)
        if self.call == "F.relu by keyword":
            return F.relu(inplace=False, input=x)
        if self.call == "F.relu_":
            return F.relu_(x)
        if self.call == "torch.relu":
            return torch.relu(x)
        if self.call == "torch.relu_":
            return torch.relu_(x)
        if self.call == "x.relu":
            return x.relu()
        if self.call == "x.relu_":
            return (
                x
                .relu_()
            )  # fmt: skip
        if self.call == "F.leaky_relu":
            return F.leaky_relu(x, 0.2)
        if self.call == "F.leaky_relu_":
            return F.leaky_relu_(x, negative_slope=0.1)
        if self.call == "F.prelu":
            return F.prelu(x, self.weight)
        if self.call == "x.prelu":
            return x.prelu(self.weight)
        if self.call == "F.relu6":
            return F.relu6(9 * x, True)
        if self.call == "F.hardtanh":
            return F.hardtanh(x, -0.3, max_val=0.2)
        if self.call == "F.hardtanh_":
            return F.hardtanh_(x, min_val=-0.1)
        if self.call == "function in an attribute":
            return self.act(x)
        if self.call == "partial in an attribute":
            return self.partial(x)
        if self.call == "module in a list":
            return self.unregistered[0](x)
        if self.call == "nested":
            return F.relu(self.linear.weight.T[0, :] + F.relu(x).relu())
        if self.call == "comprehension":
            return sum([F.relu(part - self.weight) for part in (x, 2 * x)])
        raise AssertionError(self.call)


CALLS = [
    line.split('"')[1]
    for line in inspect.getsource(Forms.forward).splitlines()
    if "if self.call" in line
]


@pytest.mark.parametrize("call", CALLS)
def test_every_form_of_call(call):
    net = Forms(call)
    assert_converted(net, torch.randn(4, 6))
    assert {unit.num_channels for unit in units(net)} == {5}


MODULES = {
    "ReLU": (nn.ReLU(), {"a_l": 0.0, "t_l": 0.0, "a_r": 1.0, "t_r": 1.0}),
    "ReLU inplace": (nn.ReLU(inplace=True), {"a_l": 0.0, "t_l": 0.0, "a_r": 1.0}),
    "LeakyReLU": (nn.LeakyReLU(0.3, inplace=True), {"a_l": 0.3, "t_l": 0.0, "a_r": 1.0}),
    "PReLU shared": (nn.PReLU(init=0.5), {"a_l": 0.5, "t_l": 0.0, "a_r": 1.0}),
    "PReLU": (nn.PReLU(4, init=-0.25), {"a_l": -0.25, "t_l": 0.0, "a_r": 1.0}),
    "ReLU6": (nn.ReLU6(), {"a_l": 0.0, "t_l": 0.0, "a_r": 0.0, "t_r": 6.0}),
    "Hardtanh": (nn.Hardtanh(-2, 0.7), {"a_l": 0.0, "t_l": -2.0, "a_r": 0.0, "t_r": 0.7}),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", MODULES)
def test_every_module_in_every_precision(kind, dtype):
    module, values = MODULES[kind]
    net = nn.Sequential(nn.Conv2d(3, 4, 3), copy.deepcopy(module), nn.Flatten()).to(dtype)
    x = 8 * torch.randn(2, 3, 8, 8, dtype=dtype)
    with torch.no_grad():
        before = net(x)
        ts.convert(net)
        assert torch.equal(net(x), before)
    (unit,) = units(net)
    assert unit.num_channels == 4
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    for name, p in unit.named_parameters():
        assert p.dtype == expected
        assert p.requires_grad
        if name in values:
            assert torch.equal(p, torch.full((4,), values[name], dtype=expected))


def test_prelu_keeps_its_learned_slopes():
    net = nn.Sequential(nn.Conv1d(2, 3, 1), nn.PReLU(3))
    slopes = torch.tensor([0.1, -0.5, 2.0])
    with torch.no_grad():
        nn.utils.vector_to_parameters(slopes, net[1].parameters())
    assert_converted(net, torch.randn(2, 2, 9))
    assert torch.equal(units(net)[0].a_l, slopes)


def test_special_inputs_go_through_as_before():
    net = nn.Sequential(nn.Identity(), nn.ReLU(), nn.Hardtanh())
    x = torch.tensor([[float("inf"), -float("inf"), float("nan"), -0.0, 0.0, 1.0, -1.0]])
    before = net(x)
    assert torch.equal(ts.convert(net, x)(x).nan_to_num(7), before.nan_to_num(7))


# ---- which channels ----


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, 4)
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8))

    def forward(self, x):
        x = F.relu(self.conv(x))
        x = F.relu(x.permute(0, 2, 3, 1))
        x = self.mlp(self.norm(x).flatten(1, 2))
        return F.relu(x).transpose(1, 2).relu()


def test_channels_are_followed_through_permutations():
    net = Tokens()
    assert_converted(net, torch.randn(2, 3, 16, 16))
    paths = ("relu", "relu_2", "mlp.1", "relu_3", "relu_4")
    assert sizes(net, *paths) == [(8, 1), (8, 3), (12, -1), (8, -1), (8, 1)]


def test_without_a_channel_dimension_the_unit_is_shared():
    class Scalar(nn.Module):
        def forward(self, x):
            return F.relu(x.sum())

    net = ts.convert(Scalar(), torch.ones(3))
    assert net(torch.ones(3)) == 3
    assert units(net)[0].num_channels == 1


# ---- one unit per place ----


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.relu(self.a(x))
        x = self.relu(self.b(x))
        return self.relu(self.c(x))


def test_a_module_called_in_three_places_becomes_three_units():
    net = Reused()
    assert assert_converted(net, torch.randn(3, 4)) == 3
    assert sizes(net, "relu", "relu_2", "relu_3") == [(6, -1), (8, -1), (4, -1)]


def test_one_object_in_several_slots_becomes_several_units():
    act = nn.ReLU()
    net = nn.Sequential(nn.Linear(4, 6), act, nn.Linear(6, 6), act)
    assert_converted(net, torch.randn(3, 4))
    assert net[1] is not net[3]
    assert len(units(net)) == 2


def test_a_shared_submodule_shares_its_unit():
    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net = nn.Sequential(block, nn.LayerNorm(4), block)
    assert assert_converted(net, torch.randn(3, 4)) == 2
    assert net[0] is net[2]
    assert len(units(net)) == 1


class Loop(nn.Module):
    def __init__(self, widths=(4, 6, 8)):
        super().__init__()
        self.act = nn.ReLU()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(widths))

    def forward(self, x):
        """Runs the layers."""
        for layer in self.layers:
            x = self.act(layer(x))
            x = F.leaky_relu(x - 0.1)
        return x


def test_each_turn_of_a_loop_over_layers_gets_its_unit():
    net = Loop()
    assert_converted(net, torch.randn(3, 4))
    assert sizes(net, "act.0", "act.1") == [(6, -1), (8, -1)]
    assert sizes(net, "leaky_relu.0", "leaky_relu.1") == [(6, -1), (8, -1)]
    equal_widths = ts.convert(Loop((4, 4, 4, 4)))
    assert len(units(equal_widths)) == 6


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(4, 4)

    def forward(self, x):
        h = torch.zeros_like(x[0])
        for row in x:
            h = F.relu(self.step(h) + row)
        return h


def test_a_recurrent_loop_shares_its_unit_as_it_shares_its_weights():
    net = ts.convert(Recurrent(), torch.randn(3, 2, 4))
    assert len(units(net)) == 1
    assert net(torch.randn(7, 2, 4)).shape == (2, 4)  # any number of turns


# ---- in place ----


class ReadsInputAgain(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.inner = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4))
        self.how = how

    def forward(self, x):
        x = self.linear(x)
        if self.how == "statement":
            F.relu(x, inplace=True)
            return x
        if self.how == "sum":
            return F.relu_(x) + x
        if self.how == "alias":
            kept = x
            x = x.relu_()
            return x * 2 + kept
        if self.how == "view":
            x[:, :2].relu_()
            return x
        if self.how == "in a child":  # the pre-activation residual block
            return self.inner(x) + x
        raise AssertionError(self.how)


@pytest.mark.parametrize("how", ["statement", "sum", "alias", "view", "in a child"])
def test_later_reads_of_an_in_place_input_see_the_result(how):
    net = ReadsInputAgain(how)
    ts_net = copy.deepcopy(net)
    if how != "in a child":
        del net.inner, ts_net.inner
    assert_converted(ts_net, torch.randn(3, 4))
    assert all(isinstance(unit, InPlaceSReLU) for unit in units(ts_net))


def test_in_place_is_dropped_where_nobody_looks():
    net = ts.convert(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)))
    assert type(net[1]) is ts.SReLU


# ---- what must not change ----


def scale(value):
    """A decorator that leaves a mark on the function, as torch.jit.export does."""

    def mark(function):
        function.scale = value
        return function

    return mark


def closed_over(factor):
    class Closure(Reused):
        """Uses what a rewritten method must keep."""

        def __init__(self):
            super().__init__()
            self.__private = nn.Linear(4, 4)

        @scale(3)
        def forward(self, x, shift=0.5, *, times=2):
            x = super().forward(x)
            return factor * times * F.relu(self.__private(x) - shift)

    return Closure


def test_rewritten_methods_keep_closure_super_private_names_and_defaults():
    net = closed_over(10.0)()
    x = torch.randn(3, 4)
    before = net(x), net(x, 0.1, times=3)
    ts.convert(net, skip="relu")  # what super().forward() calls cannot be rewritten
    assert_same(before, (net(x), net(x, 0.1, times=3)))
    assert vars(type(net).forward)["scale"] == 3
    assert len(units(net)) == 1
    assert "self.relu_2(" in inspect.getsource(type(net).forward)


def test_copies_pickles_and_state_dicts_are_converted_too(tmp_path):
    net, x = ts.convert(Loop()), torch.randn(3, 4)
    with torch.no_grad():
        for unit in units(net):
            unit.a_l.uniform_()
    torch.save(net, tmp_path / "net.pt")
    fresh = ts.convert(Loop())
    fresh.load_state_dict(net.state_dict())
    loaded = torch.load(tmp_path / "net.pt", weights_only=False)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), loaded, fresh):
        assert torch.equal(other(x), net(x))
        assert type(other) is type(net)
        assert isinstance(other, Loop)
        before = other(x)
        with torch.no_grad():
            units(net)[0].a_l.add_(1)
            assert not torch.equal(net(x), before)
            assert torch.equal(other(x), before)  # its units are its own
            units(net)[0].a_l.sub_(1)
            units(net)[0].a_l.copy_(units(other)[0].a_l)


@pytest.mark.parametrize("net", [Loop(), Reused(), ReadsInputAgain("alias"), Forms("nested")])
def test_compiles_as_one_graph(net):
    net = copy.deepcopy(net)
    if isinstance(net, ReadsInputAgain):
        del net.inner
    x = torch.randn(3, 6 if isinstance(net, Forms) else 4)
    ts.convert(net)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), net(x))


class Stateful(nn.Module):
    """Counts, drops at random, remembers and decides by value."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout()
        self.last = None

    def forward(self, x):
        x = self.drop(self.norm(self.linear(x)))
        self.last = x
        return F.relu(x) if x.sum().item() < 1e9 else x


def test_converting_leaves_no_trace_in_buffers_random_state_and_attributes():
    net, x = Stateful(), torch.randn(8, 4)
    before, state, y = copy.deepcopy(net.state_dict()), torch.get_rng_state(), x.clone()
    ts.convert(net, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(net.state_dict()[key], value) for key, value in before.items())
    assert net.last is None
    assert torch.equal(x, y)
    assert len(units(net)) == 1


def test_parameters_are_trainable_whatever_surrounds_the_call():
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            net = ts.convert(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        net(torch.randn(2, 4)).sum().backward()
        assert all(p.grad is not None for p in units(net)[0].parameters())


def test_parameters_are_on_the_device_of_the_layer():
    with torch.device("meta"):
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    assert all(p.is_meta for p in units(ts.convert(net))[0].parameters())


# ---- what is left, and why ----


def elsewhere(x):
    return F.relu(x)


class Awkward(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.linear, self.wide = nn.Linear(4, 4), nn.Linear(4, 6)
        self.what = what

    def helper(self, x):
        return F.relu(x)

    def forward(self, x):
        x = F.leaky_relu(self.linear(x))  # could be converted, but never without the rest
        if self.what == "not a method":
            return elsewhere(x)
        if self.what == "channels":
            return self.helper(self.wide(x)).sum() + self.helper(x)
        if self.what == "indirectly":
            return sum(map(F.relu, (x, x))) + torch.Tensor.relu(x)
        if self.what == "computed":
            return F.prelu(x, self.linear(x).mean().reshape(1))
        if self.what == "parameters":
            return sum(F.leaky_relu(x, slope) for slope in (0.1, 0.2))
        if self.what == "int64":
            return F.relu(x.long()) + x
        raise AssertionError(self.what)


@pytest.mark.parametrize(
    "what", ["not a method", "channels", "indirectly", "computed", "parameters", "int64"]
)
def test_what_cannot_be_rewritten_is_left_whole_and_listed(what):
    net, x = Awkward(what), torch.randn(3, 4)
    before, cls = net(x), type(net)
    ts.convert(net, x)
    assert torch.equal(net(x), before)
    left = ts.summary(net).left
    assert any(what in line.why for line in left)
    if what != "not a method":  # there the module itself could be converted whole
        assert type(net) is cls
        assert not units(net)
        assert any("LeakyReLU" in line.activation for line in left)


def test_an_activation_that_is_never_called_is_left_and_listed():
    net = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.ReLU()})
    net.forward = lambda x: net["used"](x).relu_()  # type: ignore[method-assign]
    ts.convert(net, torch.randn(2, 4))
    assert type(net["unused"]) is nn.ReLU
    assert any("did not call" in line.why for line in ts.summary(net).left)


def test_a_fused_encoder_layer_is_left_because_it_would_bypass_the_unit():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    ts.convert(layer, torch.randn(2, 5, 8))
    assert "fused" in ts.summary(layer).left[0].why
    slow = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    assert_converted(slow, torch.randn(5, 2, 8), example=torch.randn(5, 2, 8))
    assert sizes(slow, "relu") == [(16, -1)]


def test_training_mode_that_cannot_run_is_listed():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    ts.convert(net, torch.randn(1, 4))
    assert len(units(net)) == 1
    (line,) = ts.summary(net).left
    assert "more than 1 value" in line.why


# ---- choosing ----


def test_only_and_skip():
    def build():
        return nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4), nn.ReLU())

    paths = lambda net: [path for path, m in net.named_modules() if isinstance(m, ts.SReLU)]  # noqa: E731
    assert paths(ts.convert(build(), only="0")) == ["0.1"]
    assert paths(ts.convert(build(), only=["2"])) == ["2"]
    assert paths(ts.convert(build(), only="*", skip="0.*")) == ["2"]
    net = ts.convert(build(), skip="0")
    assert [(line.where, line.why) for line in ts.summary(net).left] == [("0.1", "not asked for")]
    assert paths(ts.convert(net)) == ["0.1", "2"]  # the rest, later
    assert not ts.summary(net).left
    assert ts.convert(net) is net  # nothing more to do


def test_a_second_conversion_rewrites_what_the_first_rewrote():
    net = ts.convert(Loop(), skip="act")
    assert len(units(net)) == 2
    assert_converted(net, torch.randn(3, 4))
    assert len(units(net)) == 4
    assert torch.equal(pickle.loads(pickle.dumps(net))(torch.ones(1, 4)), net(torch.ones(1, 4)))


# ---- bad input ----


def test_bad_input_is_refused_and_changes_nothing():
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module"):
        ts.convert(torch.relu)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing to convert"):
        ts.convert(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="itself a ReLU"):
        ts.convert(nn.ReLU())
    with pytest.raises(ValueError, match="scripted"):
        ts.convert(torch.jit.ScriptModule())
    with pytest.raises(ValueError, match="then wrap it"):
        ts.convert(nn.DataParallel(nn.Sequential(nn.Linear(2, 2), nn.ReLU())))
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    for argument in ("only", "skip"):
        with pytest.raises(ValueError, match=f"{argument}='layr' fits no module"):
            ts.convert(net, **{argument: "layr"})
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ts.convert(net, torch.ones(1, 7))
    with pytest.raises(ValueError, match="Pass one as example="):
        ts.convert(nn.Bilinear(2, 3, 4))
    with pytest.raises(ValueError, match="Pass one as example="):
        ts.convert(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(2, 3)))
    assert type(net[1]) is nn.ReLU
