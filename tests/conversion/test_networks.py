"""convert on networks that everybody uses."""

import copy
from collections import Counter

import pytest
import torch
from checking import assert_same, loss, run, units
from torch import nn

import torch_srelu as ts

vision = pytest.importorskip("torchvision.models")
timm = pytest.importorskip("timm")
pytestmark = pytest.mark.usefixtures("one_thread")


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


@pytest.mark.slow
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
