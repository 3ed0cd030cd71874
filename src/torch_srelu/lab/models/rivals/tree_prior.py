"""Tree-based priors for the last layer (Srivastava & Salakhutdinov, 2013).

Classes have superclasses. The weights w_c of a class are normal around the vector v_s of its
superclass, and these around 0, which adds to the loss

    E = sum_c near / 2 |w_c - v_s(c)|^2 + sum_s far / 2 |v_s|^2

Given the weights, the best v_s is the mean of its classes, drawn to 0 as by far / near further
classes. So v is never stored: each step uses the best one. Now and then each class moves to the
superclass where E is smallest. Ours are: both strengths, to move classes once an epoch, and the
network below the last layer, which is that of the APL paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...data.datasets import dataset
from ..layers import LayerBuilder, ParameterRate
from ..network import Network
from ..sequential import SequentialNetwork, SequentialSpec
from ..sequential_networks import NETWORKS as SEQUENTIAL

NEAR, FAR = 1e-3, 1e-3  # strengths of the prior, like a weight decay
REFINED_FROM = 0.5  # share of training after which the tree may change: weights must mean something


class TreePrior(nn.Module):
    """The prior on the weights of a last layer, and its tree.

    Args:
        superclass: The superclass of each class (C,), int64, numbered from 0.
        near: Strength that draws a class to its superclass.
        far: Strength that draws a superclass to 0.

    Example:
        >>> prior = TreePrior(torch.tensor([0, 0, 1]), near=1.0, far=2.0)
        >>> prior.vectors(torch.tensor([[1.0], [3.0], [3.0]]))  # (1 + 3) / (2 + 2), 3 / (1 + 2)
        tensor([[1.],
                [1.]])
    """

    superclass: Tensor

    def __init__(self, superclass: Tensor, near: float = NEAR, far: float = FAR) -> None:
        super().__init__()
        self.register_buffer("superclass", superclass.clone())
        self.superclasses = int(superclass.max()) + 1
        self.near, self.far = near, far

    def _members(self, like: Tensor) -> Tensor:
        """(S, C): 1 where the class belongs to the superclass."""
        numbers = torch.arange(self.superclasses, device=like.device)
        return (self.superclass == numbers[:, None]).to(like.dtype)

    def vectors(self, weight: Tensor) -> Tensor:
        """The best superclass vectors (S, D) for the weights (C, D)."""
        members = self._members(weight)
        return members @ weight / (members.sum(1, keepdim=True) + self.far / self.near)

    def energy(self, weight: Tensor) -> Tensor:
        """E for the weights (C, D) with the best superclass vectors."""
        vectors = self.vectors(weight)
        apart = weight - self._members(weight).T @ vectors
        return (self.near * apart.square().sum() + self.far * vectors.square().sum()) / 2

    @torch.no_grad()
    def refine(self, weight: Tensor) -> int:
        """Moves classes, one after the other, to where E is smallest; returns how many moved.

        With sums g_s and numbers n_s of the classes of each superclass, E is a constant less
        near / 2 * sum_s |g_s|^2 / (n_s + far / near): only the two superclasses of a move change.
        """
        rows = weight.double().cpu()
        tree = self.superclass.cpu().clone()
        members = (tree == torch.arange(self.superclasses)[:, None]).double()
        sums, counts = members @ rows, members.sum(1)
        shrink = self.far / self.near

        def gain(sums: Tensor, counts: Tensor) -> Tensor:
            return sums.square().sum(-1) / (counts + shrink)

        moved = 0
        for c, row in enumerate(rows):
            old = int(tree[c])
            sums[old] -= row
            counts[old] -= 1
            gains = gain(sums + row, counts + 1) - gain(sums, counts)
            new = int(gains.argmax())
            if gains[new] <= gains[old]:
                new = old
            sums[new] += row
            counts[new] += 1
            tree[c] = new
            moved += new != old
        self.superclass.copy_(tree)
        return moved

    def extra_repr(self) -> str:
        return f"superclasses={self.superclasses}, near={self.near}, far={self.far}"


class TreeNetwork(Network):
    """A network with a tree-based prior on its last layer in the place of weight decay.

    Args:
        body: The network; its last layer is dense.
        prior: The prior on that layer's weights.
    """

    def __init__(self, body: SequentialNetwork, prior: TreePrior) -> None:
        super().__init__()
        self.body, self.prior = body, prior

    @property
    def last(self) -> Tensor:
        """The weights (C, D) of the last layer."""
        *_, (_, layer) = self.body.layers()
        return layer.weights.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)

    def losses(self, outputs: tuple[Tensor, ...], labels: Tensor) -> tuple[Tensor, Tensor]:
        plain = F.cross_entropy(outputs[0], labels)
        return plain + self.prior.energy(self.last), plain

    def refine(self, done: float) -> None:
        if done >= REFINED_FROM:
            self.prior.refine(self.last)

    def activations(self) -> Iterator[tuple[str, nn.Module]]:
        return self.body.activations()

    def rates(self, weight_decay: float) -> Iterator[ParameterRate]:
        for rate in self.body.rates(weight_decay):
            yield rate._replace(decay=0.0) if rate.parameter is self.last else rate


@dataclass(frozen=True)
class TreePriorSpec(SequentialSpec):
    """A network with a tree-based prior on its last layer.

    Attributes:
        superclass: The superclass of each class in the initial tree.
    """

    superclass: tuple[int, ...]

    def build_network(self, builder: LayerBuilder) -> TreeNetwork:
        return TreeNetwork(self.build_layers(builder), TreePrior(torch.tensor(self.superclass)))


_LAYERS, _CIFAR100 = SEQUENTIAL["cnn-cifar100"].layers, dataset("cifar100")
NETWORKS = {"tree-cifar100": TreePriorSpec(3, 32, 100, _LAYERS, _CIFAR100.superclasses)}
