"""NIN against the published tables: sizes, parameters, initialisation, learning-rate factors."""

import numpy as np
import pytest
import torch

from torch_srelu import SReLU
from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.models.activation_registry import ACTIVATIONS
from torch_srelu.lab.models.layers import ActivatedLayer, ConvSpec, normal
from torch_srelu.lab.models.network_registry import network_spec
from torch_srelu.lab.models.sequential_networks import NETWORKS
from torch_srelu.lab.runtime.seeds import generator
from torch_srelu.lab.training.step import make_optimizer

# Parameters without activations, SReLU's parameters (4 per channel), as published or counted.
PUBLISHED = {
    "nin-cifar10": (966_986, 5_672),
    "nin-cifar100": (984_356, 6_032),
    "nin-published-start-cifar100": (984_356, 6_032),
    "nin-mnist": (349_674, 2_856),
    "nin-lifted-mnist": (349_674, 2_856),
}


def count(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_parameters_are_those_published(name):
    plain, srelu = PUBLISHED[name]
    assert count(NETWORKS[name].build("relu")) == plain
    assert count(NETWORKS[name].build("srelu")) - plain == srelu
    assert count(NETWORKS[name].build("prelu")) - plain == srelu // 4
    assert count(NETWORKS[name].build("apl")) - plain == srelu
    assert count(NETWORKS[name].build("srelu-shared")) - plain == 4 * 9


def test_apl_per_neuron_adds_what_its_authors_say():
    added = count(NETWORKS["nin-cifar10"].build("apl", {"per": "neuron"})) - 966_986
    assert added == 2_525_696


@pytest.mark.parametrize("name", [name for name in NETWORKS if name.startswith("nin-")])
def test_sizes_shrink_by_half_and_classes_come_out(name):
    spec, net, sizes = NETWORKS[name], NETWORKS[name].build("relu").eval(), []
    for pool in net.children():
        if isinstance(pool, (torch.nn.MaxPool2d, torch.nn.AvgPool2d)):
            pool.register_forward_hook(lambda _m, _i, out: sizes.append(out.shape[-1]))
    logits = net(torch.zeros(2, spec.channels, spec.size, spec.size))
    assert logits.shape == (2, spec.classes)
    assert sizes == [spec.size // 2, spec.size // 4]


def test_average_pooling_divides_by_what_the_window_covers():
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    values = image[0, 0].numpy()
    expected = [[values[i : i + 3, j : j + 3].mean() for j in (0, 2)] for i in (0, 2)]
    pool = NETWORKS["nin-cifar10"].build("relu").get_submodule("pool2")
    np.testing.assert_allclose(pool(image)[0, 0], expected)


def test_equal_seeds_give_equal_weights_for_every_activation():
    def weights(activation: str, seed: int) -> list[torch.Tensor]:
        net = NETWORKS["nin-digits"].build(activation, seed=seed)
        return [p for _, block in net.layers() for p in block.weights.parameters()]

    reference = weights("relu", 3)
    for name in (name for name, act in ACTIVATIONS.items() if not act.joins):
        assert all(map(torch.equal, weights(name, 3), reference)), name
    assert not torch.equal(weights("relu", 4)[0], reference[0])


@pytest.mark.parametrize(
    ("name", "layer", "std", "bias"),
    [
        ("nin-cifar10", "conv1", 0.05, 0),
        ("nin-cifar10", "cccp2", 0.05, 0),
        ("nin-published-start-cifar100", "conv1", 0.001, 0),
        ("nin-published-start-cifar100", "cccp1", 0.01, 0),
        ("nin-published-start-cifar100", "cccp2", 0.01, 0),
        ("nin-published-start-cifar100", "conv2", 0.05, 0),
        ("nin-cifar100", "conv1", 0.05, 0),
        ("nin-cifar100", "cccp2", 0.05, 0),
        ("nin-mnist", "conv3", (2 / (48 * 25)) ** 0.5, 0),
        ("nin-lifted-mnist", "conv3", (2 / (48 * 25)) ** 0.5, 0),
        ("nin-lifted-mnist", "cccp6", 0.05, 1),
    ],
)
def test_initial_weights_are_as_published(name, layer, std, bias):
    block = dict(NETWORKS[name].build("relu", seed=1).layers())[layer]
    count = block.weights.weight.numel()
    assert block.weights.weight.std().item() == pytest.approx(std, rel=4 / (2 * count) ** 0.5)
    assert block.weights.weight.mean().abs().item() < 4 * std / count**0.5
    assert block.weights.bias is not None
    assert torch.equal(block.weights.bias, torch.full_like(block.weights.bias, bias))


@pytest.mark.parametrize(
    ("dataset", "last"), [("cifar10", (0.1, 0.1)), ("cifar100", (1, 2)), ("mnist", (0.1, 0.1))]
)
@pytest.mark.parametrize("activation", ["relu", "apl", "prelu", "srelu"])
def test_every_parameter_has_its_published_factors_once(dataset, last, activation):
    run = recipe(dataset, activation, seed=0, lr_scale=0.5)
    net = NETWORKS[run.net].build(activation)
    groups = make_optimizer(net, run).param_groups
    found = {p: (g["factor"], g["weight_decay"]) for g in groups for p in g["params"]}
    assert sum(len(g["params"]) for g in groups) == len(found) == len(list(net.parameters()))
    acting = {"prelu": (1.0, 0.0), "apl": (1.0, 1e-3), "srelu": (0.5, 0.0)}
    for name, block in net.layers():
        weight, bias = last if name == "cccp6" else (1.0, 2.0)
        assert found[block.weights.weight] == (weight, run.weight_decay)
        assert block.weights.bias is not None
        assert found[block.weights.bias] == (bias, 0.0)
        assert all(found[p] == acting[activation] for p in block.act.parameters())


def test_unknown_names_list_the_choices():
    with pytest.raises(ValueError, match=r"did you mean 'nin-cifar10'.*nin-digits"):
        network_spec("nin-cifar1")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("frozen", [False, True])
def test_a_gpu_block_takes_its_bias_along(frozen: bool) -> None:
    """In training, convolution, bias and SReLU are what they are one after the other."""
    torch.manual_seed(0)
    net = NETWORKS["nin-digits"].build("srelu").cuda()
    block = next(block for _, block in net.layers())
    assert isinstance(block.act, SReLU)
    block.act.frozen = frozen
    x = torch.randn(8, 1, 8, 8, device="cuda")
    grad = torch.randn(8, 32, 8, 8, device="cuda")
    parameters = list(block.parameters())
    got = [block(x), *torch.autograd.grad(block(x), parameters, grad)]
    plain = block.act(block.weights(x))
    expected = [plain, *torch.autograd.grad(plain, parameters, grad)]
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("act", [torch.nn.ReLU(), SReLU(10)])
@pytest.mark.parametrize(("kernel", "needs_grad"), [(3, False), (3, True), (1, True)])
def test_a_compiled_block_is_the_plain_block(act, kernel: int, needs_grad: bool) -> None:
    """Outputs and gradients, the image's too, which code for two threads has had wrong."""
    torch.manual_seed(0)
    torch.set_num_threads(2)
    spec = ConvSpec("conv", 10, kernel, kernel // 2, initializer=normal(0.5))
    block = ActivatedLayer(spec, spec.build(3, 6, generator(0, "weights")), act)
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last).requires_grad_(needs_grad)
    wanted = [*block.parameters(), x] if needs_grad else [*block.parameters()]
    plain, compiled = block(x), torch.compile(block, fullgraph=True)(x)
    torch.testing.assert_close(compiled, plain)
    grad = torch.randn_like(plain)
    torch.testing.assert_close(
        torch.autograd.grad(compiled, wanted, grad), torch.autograd.grad(plain, wanted, grad)
    )
