"""The configuration of a run: every decision that can change a number."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from torch_srelu.adaptive.adaptive_init import SCOPES
from torch_srelu.module import NAMES

from ..._text import counted
from ..data.datasets import dataset
from ..util.choices import check_choice

CHOICES = {
    "optimizer": ("sgd",),
    "schedule": ("constant", "multistep", "cosine", "poly"),
    "preprocessing": ("scale", "gcn", "gcn+zca", "mean"),
    "augmentation": ("none", "flips", "crops+flips"),
    "precision": ("float32", "bf16"),
    "scope": SCOPES,
}

# Fields of `Run` that mean something to some activations alone.
ADAPTIVE_FIELDS = ("freeze", "quantile", "scope")
SRELU_FIELDS = ("lr_scale", "fixed")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is trained, on what, how, and from which seed. Equal runs give equal numbers.

    Attributes:
        dataset: Name of the data set.
        net: Name of the network.
        activation: Name of the activation.
        options: Options of the activation, where they differ from its defaults.
        seed: Of the streams for weights, activation parameters, order, augmentation, dropout.
        epochs: Length of the training. An epoch is every whole batch that the data fill.
        batch: Images in a step, over all processes together.
        lr: Learning rate at the start.
        optimizer: One of `CHOICES["optimizer"]`.
        momentum: Its momentum.
        weight_decay: L2 penalty on the weights of convolutions; nothing else is decayed.
        schedule: How the learning rate decays (see `learning_rate`).
        milestones: Where "multistep" decays it, as shares of the whole training.
        gamma: The factor at each milestone.
        power: Exponent of the schedule "poly".
        freeze: Epochs in which an adaptive activation stays frozen; then it is set from its inputs.
        quantile: Which quantile of its inputs becomes ``t_r``.
        scope: One ``t_r`` per "channel" or per "layer".
        lr_scale: Factor on the learning rate of SReLU's parameters.
        fixed: SReLU parameters that are not trained, of t_r, a_r, t_l, a_l.
        preprocessing: One of `CHOICES["preprocessing"]`.
        augmentation: One of `CHOICES["augmentation"]`.
        validation: Share of the training data that is kept apart and measured each epoch.
        ema: Decay of an exponential average of the weights, tested beside them; 0 for none.
        precision: "float32", or "bf16" for autocast.
        deterministic: Only algorithms whose result does not vary from run to run (CUDA).
        world: Number of processes that share each batch.
        start: Key of a finished run whose weights this one begins with; "" to begin from the seed.

    Example:
        >>> run = Run(dataset="digits", net="nin-digits", activation="relu", seed=1, epochs=2,
        ...           batch=64, lr=0.1)
        >>> Run.from_dict(run.to_dict()) == run
        True
        >>> len(run.key())
        10
    """

    dataset: str
    net: str
    activation: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int
    epochs: int
    batch: int
    lr: float
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "constant"
    milestones: tuple[float, ...] = ()
    gamma: float = 0.1
    power: float = 0.5
    freeze: int = 0
    quantile: float = 0.9
    scope: str = "channel"
    lr_scale: float = 1.0
    fixed: tuple[str, ...] = ()
    preprocessing: str = "scale"
    augmentation: str = "none"
    validation: float = 0.0
    ema: float = 0.0
    precision: str = "float32"
    deterministic: bool = False
    world: int = 1
    start: str = ""

    def __post_init__(self) -> None:
        # One spelling of every value, so that equal runs have equal keys: lists from JSON become
        # tuples, whole numbers given for fractions become floats, options and names are sorted.
        for spec in fields(self):
            value = getattr(self, spec.name)
            if spec.type == "float":
                object.__setattr__(self, spec.name, as_float(value))
            elif isinstance(value, list):
                object.__setattr__(self, spec.name, tuple(value))
        if isinstance(self.milestones, tuple):
            object.__setattr__(self, "milestones", tuple(map(as_float, self.milestones)))
        if isinstance(self.fixed, tuple) and all(name in NAMES for name in self.fixed):
            object.__setattr__(self, "fixed", tuple(n for n in NAMES if n in self.fixed))
        object.__setattr__(self, "options", dict(sorted(self.options.items())))
        _check(self)

    def to_dict(self) -> dict[str, Any]:
        """A plain dict of strings, numbers and lists."""
        plain = asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Run:
        """The run that `to_dict` wrote; names that do not exist are an error."""
        for name in plain:
            check_choice("field of a run", name, [f.name for f in fields(cls)])
        return cls(**plain)

    def key(self) -> str:
        """A short name of exactly these decisions, equal everywhere.

        Values that equal their default do not enter: a field that is added later, with what was
        done before as its default, changes no key.
        """
        decided = {
            spec.name: value
            for spec in fields(self)
            if (value := getattr(self, spec.name))
            != ({} if spec.default is MISSING else spec.default)
        }
        text = json.dumps(decided, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def __hash__(self) -> int:
        return hash((self.dataset, self.net, self.activation, self.seed))


def learning_rate(run: Run, step: int, steps: int) -> float:
    """The learning rate of training step ``step`` out of ``steps``.

    constant: lr. multistep: lr * gamma^k after k milestones.
    cosine: lr * (1 + cos(pi * done)) / 2. poly: lr * (1 - done)^power.

    Example:
        >>> run = Run(dataset="digits", net="nin-digits", activation="relu", seed=0, epochs=1,
        ...           batch=64, lr=0.1, schedule="multistep", milestones=(0.5, 0.75))
        >>> [round(learning_rate(run, step, 100), 4) for step in (0, 49, 50, 99)]
        [0.1, 0.1, 0.01, 0.001]
    """
    done = step / steps
    if run.schedule == "multistep":
        return run.lr * run.gamma ** sum(step >= round(m * steps) for m in run.milestones)
    if run.schedule == "cosine":
        return run.lr * (1 + math.cos(math.pi * done)) / 2
    if run.schedule == "poly":
        return run.lr * (1 - done) ** run.power
    return run.lr


def as_float(value: Any) -> Any:
    """A whole number as a float; anything else, which may be wrong, as it is."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _check(run: Run) -> None:
    """Raises ValueError or TypeError if a decision is impossible or contradicts another."""
    _check_types(run)
    data = dataset(run.dataset)
    for what, choices in CHOICES.items():
        check_choice(what, getattr(run, what), choices)
    for what, value in (("preprocessing", "mean"), ("augmentation", "crops+flips")):
        if (getattr(run, what) == value) != (data.kind == "photographs"):
            raise ValueError(
                f"{what} {value!r} belongs to photographs such as imagenette, and they have no "
                f"other; {run.dataset} cannot have {getattr(run, what)!r}"
            )
    for name in run.fixed:
        check_choice("SReLU parameter in fixed", name, NAMES)
    _check_numbers(run)


def _check_types(run: Run) -> None:
    kinds = {"str": str, "int": int, "float": float, "bool": bool}
    for spec in fields(run):
        kind, value = kinds.get(str(spec.type)), getattr(run, spec.name)
        if kind and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise TypeError(f"{spec.name} must be of type {spec.type}, got {value!r}")
    for name, kind, words in (("milestones", float | int, "numbers"), ("fixed", str, "names")):
        value = getattr(run, name)
        if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
            raise TypeError(f"{name} must be a list of {words}, got {value!r}")


def _check_numbers(run: Run) -> None:
    for name, lowest in (("epochs", 1), ("batch", 1), ("world", 1), ("seed", 0), ("freeze", 0)):
        if getattr(run, name) < lowest:
            raise ValueError(f"{name} must be at least {lowest}, got {getattr(run, name)}")
    unbounded = ("lr", "weight_decay", "gamma", "power", "lr_scale")
    limits = dict.fromkeys(unbounded, math.inf) | {"momentum": 1, "validation": 1, "ema": 1}
    for name, limit in limits.items():
        if not 0 <= getattr(run, name) < limit:
            raise ValueError(f"{name} must be in [0, {limit}), got {getattr(run, name)}")
    if not 0 < run.quantile <= 1:
        raise ValueError(f"quantile must be in (0, 1], got {run.quantile}")
    if list(run.milestones) != sorted({m for m in run.milestones if 0 < m <= 1}):
        raise ValueError(
            f"milestones must be rising shares of the training in (0, 1], got {run.milestones}"
        )
    count, multistep = len(run.milestones), run.schedule == "multistep"
    if multistep != bool(count):
        needed = "at least one" if multistep else "no"
        raise ValueError(f"schedule {run.schedule!r} needs {needed} milestone, got {count}")
    if run.freeze >= run.epochs:
        raise ValueError(
            f"a freeze of {counted(run.freeze, 'epoch')} leaves nothing of "
            f"{counted(run.epochs, 'epoch')} of training: choose a shorter freeze or more epochs"
        )
    if run.world > run.batch:
        raise ValueError(
            f"{run.world} processes are more than the {counted(run.batch, 'image')} of a batch: "
            "start fewer processes or choose a larger batch"
        )
    if run.batch % run.world:
        raise ValueError(
            f"a batch of {counted(run.batch, 'image')} cannot be shared equally by {run.world} "
            f"processes: choose a batch that is a multiple of {run.world}"
        )
