"""Runs beside the paper's rows, each of which answers one question about SReLU."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..config.recipes import faithful
from ..config.run import Run
from ..records.run_record import Results
from ..records.run_status import DEAD, FINISHED
from .contests import GIVE_UP

SLOPES = (0.01, 0.1, 0.2, 0.33)  # of LReLU, among which the validation data choose
REUSED_SLOPE = 0.2  # that of a frozen SReLU
FURTHER_EPOCHS = 20
LONGER = 1.1  # the epochs of the control of compute, by those of SReLU


class Ablation(NamedTuple):
    """SReLU with one decision changed: in words, as fields of `Run`, and for which SReLU."""

    words: str
    decisions: dict[str, Any]
    activation: str = "srelu"


ABLATIONS: dict[str, Ablation] = {
    "left": Ablation("left side only", {"fixed": ("t_r", "a_r")}),
    "right": Ablation("right side only", {"fixed": ("t_l", "a_l")}),
    "slopes": Ablation("slopes only", {"fixed": ("t_r", "t_l")}),
    "thresholds": Ablation("thresholds only", {"fixed": ("a_r", "a_l")}),
    "freeze25": Ablation("frozen for 25 %", {"freeze": 25}),
    "quantile80": Ablation("80th percentile", {"quantile": 0.8}),
    "quantile95": Ablation("95th percentile", {"quantile": 0.95}),
    "quantile10": Ablation("10th percentile", {"quantile": 0.1}),
    "slow": Ablation("learning rate x 0.1", {"lr_scale": 0.1}),
    "layer": Ablation("one initial t_r a layer", {"scope": "layer"}),
    # At the rate of the weights, shared parameters ran away within five steps of the thaw in a
    # trial: their gradients are sums over all channels.
    "shared-slow": Ablation(
        "shared by channels, learning rate x 0.1", {"lr_scale": 0.1}, "srelu-shared"
    ),
}


def ablation(name: str, condition: str, seed: int) -> Run:
    """SReLU with one decision changed (`ABLATIONS`).

    Command: ``srelu paper run ablations``, or ``ablation-<name>``.
    Cost: 39,000 steps a run. Paper: not in it.
    """
    changed = ABLATIONS[name]
    return faithful(condition, changed.activation, seed, **changed.decisions)


def published_start(seed: int) -> Run:
    """ReLU on CIFAR-100 from the initial weights and last rates that were published for it.

    Command: ``srelu paper run start``.
    Cost: 780 steps a run that is dead, 39,000 one that is not. Paper: not in it.
    """
    return faithful("cifar100", "relu", seed, net="nin-published-start-cifar100")


def zero_biases(seed: int) -> Run:
    """ReLU on MNIST with a last layer that starts as the others do, its biases at 0.

    Command: ``srelu paper run start``.
    Cost: 23,400 steps a run. Paper: not in it.
    """
    return faithful("mnist", "relu", seed, net="nin-mnist")


def slope_candidate(slope: float, condition: str, seed: int) -> Run:
    """LReLU with a slope to choose from, judged on 20 % of the training data that it did not see.

    Command: ``srelu paper run lrelu``, which trains them first.
    Cost: 31,200 steps a run. Paper: the slope that was chosen is not in it.
    """
    options, share = {"slope": slope}, 0.2
    return faithful(condition, "lrelu", seed, options=options, validation=share)


def chosen_slope(condition: str, results: Results) -> float | None:
    """The slope with the lowest validation error; None before all have been tried.

    At the first seed at which none was dead, as in the contest of the slopes. With flips it is the
    one chosen without.
    """
    plain = condition.partition("+")[0]
    for seed in range(1, GIVE_UP + 1):
        ended = {s: results.get(slope_candidate(s, plain, seed).key(), {}) for s in SLOPES}
        fates = {s: result.get("status") for s, result in ended.items()}
        if DEAD in fates.values():
            continue
        errors = {s: ended[s]["val_error"] for s in SLOPES if fates[s] == FINISHED}
        return min(errors, key=lambda s: errors[s]) if errors and all(fates.values()) else None
    return None


def before_reuse(condition: str, seed: int) -> Run:
    """The leaky ReLU network (slope 0.2, like a frozen SReLU) that reuse begins with.

    Command: ``srelu paper run reuse``.
    Cost: 39,000 steps a run. Paper: not in it; it claims that such networks can be reused.
    """
    return faithful(condition, "lrelu", seed, options={"slope": REUSED_SLOPE})


def further(activation: str, condition: str, seed: int) -> Run:
    """Twenty more epochs of that network, as it is or as SReLU, at the learning rate it ended with.

    Command: ``srelu paper run reuse``.
    Cost: 7,800 steps a run. Paper: not in it.
    """
    first = before_reuse(condition, seed)
    decisions: dict[str, Any] = {
        "start": first.key(),
        "epochs": FURTHER_EPOCHS,
        "lr": first.lr * first.gamma ** len(first.milestones),
        "schedule": "constant",
        "milestones": (),
    }
    if activation == "lrelu":
        decisions["options"] = {"slope": REUSED_SLOPE}
    else:
        decisions["freeze"] = 0  # it is adapted before its first step
    return faithful(condition, activation, seed, **decisions)


def longer(condition: str, seed: int) -> Run:
    """ReLU for longer than SReLU's training takes: a tenth more epochs.

    A step with SReLU takes 1.06 of one with ReLU where the device is theirs alone, compiled and
    captured (docs/speed.md); runs that share it, as those of the reproduction do, cannot tell.

    Command: ``srelu paper run compute``.
    Cost: 42,900 steps a run. Paper: not in it.
    """
    epochs = faithful(condition, "relu", seed).epochs
    return faithful(condition, "relu", seed, epochs=round(LONGER * epochs))
