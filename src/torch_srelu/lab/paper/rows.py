"""The rows of the paper's tables as recipes: one function a row, by the row's name in `ROWS`.

Every row is the protocol `faithful` with its own activation. Costs are in steps of 128 images; the
tables say what the recorded runs took.
"""

from __future__ import annotations

from collections.abc import Callable

from ..config.recipes import faithful
from ..config.run import Run

Recipe = Callable[..., Run]  # (condition, seed, length="short") -> Run
ROWS: dict[str, Recipe] = {}


def _row(name: str) -> Callable[[Recipe], Recipe]:
    def add(make: Recipe) -> Recipe:
        ROWS[name] = make
        return make

    return add


@_row("nin+relu")
def nin_relu(condition: str, seed: int, length: str = "short") -> Run:
    """NIN + ReLU.

    Command: ``srelu paper run headline``, ``flips``, ``mnist``; at the published length
    ``published-cifar10`` and ``published-cifar100``.
    Cost: 39,000 steps a run, 120,120 at the published length; MNIST 23,400.
    Paper: cifar10 9.67 %, cifar100 35.96 %, cifar10+flips 7.73 %, cifar100+flips 32.75 %,
    mnist 0.47 %; and 10.43 % in Table 1, where it is the published NIN.
    """
    return faithful(condition, "relu", seed, length)


@_row("nin+lrelu")
def nin_lrelu(condition: str, seed: int, length: str = "short", slope: float = 0.01) -> Run:
    """NIN + LReLU, its slope chosen on the validation data.

    Command: ``srelu paper run lrelu``; with flips ``flips-few``.
    Cost: 39,000 steps a run; choosing the slope takes four runs a data set.
    Paper: cifar10 9.75 %, cifar100 36.00 %, cifar10+flips 7.69 %, cifar100+flips 32.70 %,
    mnist 0.42 %.
    """
    return faithful(condition, "lrelu", seed, length, options={"slope": slope})


@_row("nin+prelu")
def nin_prelu(condition: str, seed: int, length: str = "short") -> Run:
    """NIN + PReLU, slopes starting at 0.25.

    Command: ``srelu paper run headline``, ``seeds``, ``flips``, ``mnist``; at the published length
    ``published-cifar10`` and ``published-cifar100``.
    Cost: 39,000 steps a run, 120,120 at the published length; MNIST 23,400.
    Paper: cifar10 9.74 %, cifar100 35.95 %, cifar10+flips 7.68 %, cifar100+flips 32.67 %,
    mnist 0.41 %.
    """
    return faithful(condition, "prelu", seed, length)


@_row("nin+apl")
def nin_apl(condition: str, seed: int, length: str = "short") -> Run:
    """NIN + APL per channel, with 2 hinges on CIFAR-10 and 1 on CIFAR-100, as the paper counts.

    Command: ``srelu paper run units``; with flips ``flips-few``.
    Cost: 39,000 steps a run.
    Paper: cifar10 9.59 %, cifar100 34.40 %, cifar10+flips 7.51 %, cifar100+flips 30.83 %.
    """
    hinges = 1 if condition.startswith("cifar100") else 2
    return faithful(condition, "apl", seed, length, options={"hinges": hinges})


@_row("nin+apl-neuron")
def nin_apl_neuron(condition: str, seed: int, length: str = "short") -> Run:
    """NIN + APL with 2 hinges for every neuron, as its authors published it.

    Command: ``srelu paper run apl-neuron``.
    Cost: 39,000 steps a run.
    Paper: cifar10 9.59 %, which it quotes, though it counts parameters per channel.
    """
    return faithful(condition, "apl", seed, length, options={"hinges": 2, "per": "neuron"})


@_row("nin+srelu-manual")
def nin_srelu_manual(condition: str, seed: int, length: str = "short") -> Run:
    """NIN + SReLU with parameters set by hand, t_r = 1 (ours: the paper's values are unknown).

    Command: ``srelu paper run units``.
    Cost: 39,000 steps a run.
    Paper: cifar10 8.61 %, cifar100 31.36 %.
    """
    return faithful(condition, "srelu-manual", seed, length)


@_row("nin+srelu-shared")
def nin_srelu_shared(condition: str, seed: int, length: str = "short") -> Run:
    """NIN + SReLU with one set of parameters a layer.

    Command: ``srelu paper run shared``.
    Cost: 39,000 steps a run.
    Paper: cifar10 9.01 %.
    """
    return faithful(condition, "srelu-shared", seed, length)


@_row("nin+srelu")
def nin_srelu(condition: str, seed: int, length: str = "short") -> Run:
    """NIN + SReLU, adaptively initialised.

    Command: ``srelu paper run headline``, ``seeds``, ``flips``, ``mnist``; at the published length
    ``published-cifar10`` and ``published-cifar100``.
    Cost: 39,000 steps a run, 120,120 at the published length; MNIST 23,400.
    Paper: cifar10 8.41 %, cifar100 31.10 %, cifar10+flips 6.98 %, cifar100+flips 29.91 %,
    mnist 0.35 %.
    """
    return faithful(condition, "srelu", seed, length)
