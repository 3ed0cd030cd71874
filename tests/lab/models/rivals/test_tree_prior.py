"""Tree-based priors: the closed form, its gradient, moves that lower the objective."""

import pytest
import torch
import torch.nn.functional as F

from torch_srelu.lab.models.rivals.tree_prior import (
    NETWORKS,
    REFINED_FROM,
    TreeNetwork,
    TreePrior,
    TreePriorSpec,
)
from torch_srelu.lab.models.sequential import DenseSpec

TREE = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
NEAR, FAR = 0.7, 0.3


def weights(classes: int = 8) -> torch.Tensor:
    return torch.randn(classes, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def energy(weight: torch.Tensor, tree: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """E as it is defined, class by class."""
    near = sum((w - vectors[s]).square().sum() for w, s in zip(weight, tree, strict=True))
    return NEAR / 2 * near + FAR / 2 * sum(v.square().sum() for v in vectors)


def test_superclass_vectors_are_the_minimum():
    weight, prior = weights(), TreePrior(TREE, NEAR, FAR)
    vectors = prior.vectors(weight).requires_grad_()
    value = energy(weight, TREE, vectors)
    torch.testing.assert_close(prior.energy(weight), value)
    (grad,) = torch.autograd.grad(value, vectors)
    torch.testing.assert_close(grad, torch.zeros_like(grad))  # E is convex in them
    for s in range(3):
        own = weight[s == TREE]
        torch.testing.assert_close(vectors[s], own.sum(0) / (len(own) + FAR / NEAR))


def test_a_step_on_the_weights_sees_the_vectors_as_constants():
    weight, prior = weights().requires_grad_(), TreePrior(TREE, NEAR, FAR)
    (grad,) = torch.autograd.grad(prior.energy(weight), weight)
    expected = NEAR * (weight - prior.vectors(weight)[TREE])
    torch.testing.assert_close(grad, expected)


def test_moves_lower_the_objective_until_no_single_one_does():
    weight, prior = weights(), TreePrior(TREE, NEAR, FAR)
    before, moved = prior.energy(weight), prior.refine(weight)
    assert moved > 0
    after = prior.energy(weight)
    assert after < before
    while prior.refine(weight):
        now = prior.energy(weight)
        assert now < after
        after = now
    for c in range(8):
        for s in range(3):
            other = TreePrior(prior.superclass, NEAR, FAR)
            other.superclasses = 3
            other.superclass[c] = s
            assert other.energy(weight) >= after - 1e-12


def test_a_class_in_the_wrong_place_finds_its_own():
    centres = torch.tensor([[4.0, 0.0], [0.0, 4.0], [-4.0, -4.0]])
    tree = torch.arange(3).repeat_interleave(4)
    noise = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
    weight = centres[tree] + 0.1 * noise
    wrong = tree.clone()
    wrong[5] = 2
    prior = TreePrior(wrong)
    assert prior.refine(weight) == 1
    assert torch.equal(prior.superclass, tree)


def network() -> TreeNetwork:
    layers = (DenseSpec("hidden", 6), DenseSpec("y", 8, acts=False))
    return TreePriorSpec(1, 4, 8, layers, tuple(TREE.tolist())).build("relu", seed=1)


def test_the_prior_takes_the_place_of_weight_decay_on_the_last_layer():
    net = network()
    decays = {rate.parameter: rate.decay for rate in net.rates(0.1)}
    assert len(decays) == len(list(net.parameters()))
    hidden, y = (layer.weights for _, layer in net.body.layers())
    assert decays[hidden.weight] == 0.1
    assert decays[y.weight] == 0
    x, labels = torch.randn(3, 1, 4, 4), torch.tensor([0, 3, 7])
    outputs = net.outputs(x)
    loss, plain = net.losses(outputs, labels)
    torch.testing.assert_close(plain, F.cross_entropy(net(x), labels))
    torch.testing.assert_close(loss, plain + net.prior.energy(y.weight))


def test_cifar100_has_twenty_superclasses_of_five():
    superclass = torch.tensor(NETWORKS["tree-cifar100"].superclass)
    assert torch.equal(superclass.bincount(), torch.full((20,), 5))


def test_the_tree_is_constant_at_first_and_a_part_of_the_state():
    net = network()
    net.refine(REFINED_FROM - 0.01)
    assert torch.equal(net.prior.superclass, TREE)
    net.refine(REFINED_FROM)
    assert not torch.equal(net.prior.superclass, TREE)
    other = network()
    other.load_state_dict(net.state_dict())
    assert torch.equal(other.prior.superclass, net.prior.superclass)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_superclass_without_classes_is_at_zero(dtype):
    prior = TreePrior(torch.tensor([0, 2, 2]))
    weight = torch.ones(3, 4, dtype=dtype)
    assert torch.equal(prior.vectors(weight)[1], torch.zeros(4, dtype=dtype))
    assert prior.energy(weight).isfinite()
