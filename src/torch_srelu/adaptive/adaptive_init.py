"""Adaptive initialisation: freeze, measure, set t_r, thaw."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils.data.distributed import DistributedSampler

from .._distributed import all_or_none, device_of, process_group, unwrap
from .._text import counted
from ..module import SReLU, whole
from ..optim import check_optimizer, forget, srelu_parameters
from .measurement import Forward, Measurement, call
from .quantile_search import NotFiniteError, QuantileSearch
from .replay import parts, samplers

SCOPES = ("channel", "layer")
_MEMORY = 128 * 2**20  # bytes for the searches of all channels together
_MIN_BINS, _MAX_BINS = 256, 65536  # of a channel: few cost passes, more would gain nothing


class AdaptiveInit:
    """The paper's way to start SReLU: frozen first, then ``t_r`` from the data, then free.

    From construction until `adapt`, the four parameters of every SReLU rest: their gradients are
    zeros, so that the network trains as the one it was (with the defaults, with leaky ReLUs of
    slope 0.2). `adapt` sets ``t_r`` of each channel to a quantile of all inputs of that channel
    over the training data, exactly, and lets go. Construct it before the first step: an optimizer
    that has momentum for these parameters by then goes on moving them.

    Args:
        model: A network with SReLU units; wrapped by DistributedDataParallel, sharded by
            `fully_shard` or compiled as you like.
        optimizer: The optimizer that trains it. It must hold the SReLU parameters without weight
            decay, as `param_groups` arranges; `adapt` clears what it remembers of them, so that
            they start as new.
        quantile: Which quantile, in (0, 1]: the value of rank ceil(quantile * n) from the smallest.
        scope: "channel", or "layer" for one value over all channels of a unit.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import torch_srelu as ts
        >>> net = nn.Sequential(nn.Linear(8, 16), ts.SReLU(16), nn.Linear(16, 2))
        >>> optimizer = torch.optim.SGD(ts.param_groups(net, lr=0.1), momentum=0.9)
        >>> init = ts.AdaptiveInit(net, optimizer)
        >>> init, net[1]
        (AdaptiveInit(quantile=0.9, scope='channel', 1 unit frozen), SReLU(16, dim=1, frozen))
        >>> init.adapt(torch.randn(50, 8).split(10))  # any loader of the training data
        >>> init, net[1]
        (AdaptiveInit(quantile=0.9, scope='channel', 1 unit adapted), SReLU(16, dim=1))
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, quantile: float = 0.9, scope: str = "channel"
    ) -> None:
        if not (isinstance(quantile, Real) and 0 < quantile <= 1):
            raise ValueError(f"quantile must be in (0, 1], a number, got {quantile!r}")
        if scope not in SCOPES:
            raise ValueError(f"scope must be one of {', '.join(SCOPES)}, got {scope!r}")
        _check_model(model)
        check_optimizer(model, optimizer)
        self.model, self.optimizer = model, optimizer
        self.quantile, self.scope = float(quantile), scope
        self._result: dict[str, dict[str, Any]] | None = None
        self._repeated = 0
        self._freeze(True)

    def __repr__(self) -> str:
        units = counted(len(_units(self.model)), "unit")
        phase = "adapted" if self.adapted else "frozen"
        return f"AdaptiveInit(quantile={self.quantile:g}, scope={self.scope!r}, {units} {phase})"

    @property
    def adapted(self) -> bool:
        """Whether `adapt` has been done, here or before the state was saved."""
        return self._result is not None

    def adapt(self, loader: Iterable[Any], forward: Forward | None = None) -> None:
        """Sets ``t_r`` from the data and ends the freeze.

        The network reads all of ``loader`` two or three times (once, as a rule, where the units see
        numbers of 16 bits), in eval mode and under the autocast context of the caller. Each time
        starts from the same random numbers, so a DataLoader that shuffles and augments works as it
        is; afterwards all random generators are as they were, and training goes on as if `adapt`
        had drawn none. ``t_r`` is set where ``a_r`` is 1: there it changes no output, elsewhere it
        would. Where several processes train together, all must call `adapt`, each with its share of
        the data, which may differ in length; buffers, such as running statistics, become those of
        the first process where DistributedDataParallel would see to that in the next forward pass.
        After an error all else is as before.

        Memory: at most 128 MB besides one batch in eval mode, for networks of up to 65,536
        channels; where there are no kernels (`backends`), also six times the input of one unit.

        Args:
            loader: All training data, readable more than once. A batch is the input, a sequence
                that starts with it, or a dict of keyword arguments for the network; it is moved
                to the device of the network.
            forward: ``forward(network, batch)`` runs the network on a batch, where that is not
                enough.
        """
        self._check_moment()
        group = process_group(self.model)
        with all_or_none(group):
            _check_loader(loader)
        with torch.inference_mode(False), torch.no_grad():
            units = _units(self.model)
            searches = self._searches(units, group)
            Measurement(self.model, searches, units, loader, forward or call, group).run()
            found = {name: _thresholds(units[name], search) for name, search in searches.items()}
            _check_fit({name: t_r for name, (t_r, _) in found.items()})
            for name, (t_r, _) in found.items():
                _write(units[name][0].t_r, t_r)
        forget(self.optimizer, srelu_parameters(self.model).values())  # they start as new
        self._result = {name: facts for name, (_, facts) in found.items()}
        self._repeated = _repeated(loader)
        self._freeze(False)

    def state_dict(self) -> dict[str, Any]:
        """The phase and what `adapt` found; ``t_r`` is in that of the model.

        The same keys in every phase, and one text for all that was found, because
        torch.distributed.checkpoint loads into what is there.
        """
        return {
            "quantile": self.quantile,
            "scope": self.scope,
            "result": "" if self._result is None else json.dumps(self._result),
            "repeated": self._repeated,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up the phase of a saved run: frozen before `adapt`, free after it."""
        missing = [name for name in self.state_dict() if name not in state]
        if missing:
            raise ValueError(
                f"the state lacks {', '.join(missing)}: give what AdaptiveInit.state_dict() gave"
            )
        for name in ("quantile", "scope"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"the state was saved with {name}={state[name]!r}, this AdaptiveInit has "
                    f"{getattr(self, name)!r}: build it as it was"
                )
        names = list(_units(self.model))
        result = json.loads(state["result"]) if state["result"] else None
        if result is not None and list(result) != names:
            raise ValueError(
                f"the state was saved for the units {', '.join(result)}, this model has "
                f"{', '.join(names)}"
            )
        self._result, self._repeated = result, state["repeated"]
        self._freeze(not self.adapted)

    def summary(self) -> str:
        """What `adapt` did, unit by unit, as a table.

        ``t_r`` from the smallest over the median to the largest of its channels; the share of
        inputs at or beyond it, where it was set (``-`` if in no channel); how many channels have
        ``t_r < t_l`` (crossed), how many were never positive (dead), and how many were left as they
        were because ``a_r`` is not 1 (kept).
        """
        if self._result is None:
            return f"frozen: {counted(len(_units(self.model)), 'SReLU unit')} until adapt(loader)"
        head = ("unit", "channels", "inputs each", "t_r", "beyond", "crossed", "dead", "kept")
        rows = [head, *(_row(name, facts) for name, facts in self._result.items())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"t_r is the {self.quantile:g} quantile of the inputs of each {self.scope}, "
            "where a_r was 1",
            *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows),
        ]
        if self._repeated:
            samples = counted(self._repeated, "sample")
            lines.append(f"{samples} read twice: DistributedSampler pads its last round")
        return "\n".join(lines)

    def _check_moment(self) -> None:
        if self.adapted:
            raise RuntimeError(
                "adapt was done already: t_r is trained by now, and would lose what it learned"
            )
        if torch._C._current_graph_task_id() != -1:
            raise RuntimeError("adapt cannot run inside a backward pass: call it between two steps")
        # Once more: a schedule of weight decay reaches all groups, and then a_r is no longer 1.
        check_optimizer(self.model, self.optimizer)

    def _freeze(self, frozen: bool) -> None:
        for units in _units(self.model).values():
            for unit in units:
                unit.frozen = frozen

    def _searches(
        self, units: dict[str, list[SReLU]], group: dist.ProcessGroup | None
    ) -> dict[str, QuantileSearch]:
        sizes = {
            name: 1 if self.scope == "layer" else first.num_channels
            for name, (first, *_) in units.items()
        }
        bins = min(_MAX_BINS, max(_MIN_BINS, _MEMORY // (8 * sum(sizes.values()))))
        return {
            name: QuantileSearch(
                size,
                self.quantile,
                bins=bins,
                device=device_of(units[name][0].t_r),
                group=group,
            )
            for name, size in sizes.items()
        }


def _check_loader(loader: Iterable[Any]) -> None:
    if isinstance(loader, Tensor) or not isinstance(loader, Iterable):
        raise TypeError(
            f"the loader is a {type(loader).__name__}: give a DataLoader or a list of batches"
        )
    once = next((part for part in parts(loader) if isinstance(part, Iterator)), None)
    if once is not None:
        raise TypeError(
            f"the loader is a {type(once).__name__}, which can be read only once, but "
            "adapt reads it several times: give a DataLoader or a list of batches"
        )


def _units(model: nn.Module) -> dict[str, list[SReLU]]:
    """The units of the network by name; those that share ``t_r`` under the name of the first."""
    found: dict[nn.Parameter, tuple[str, list[SReLU]]] = {}
    for name, module in unwrap(model).named_modules():
        if isinstance(module, SReLU):
            name = name.replace("_orig_mod.", "") or type(module).__name__
            found.setdefault(module.t_r, (name, []))[1].append(module)
    return dict(found.values())


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, got {type(model).__name__}: "
            "AdaptiveInit(model, optimizer)"
        )
    units = _units(model)
    if not units:
        raise ValueError(
            f"{type(unwrap(model)).__name__} has no SReLU: put some in, or convert the "
            "model (torch_srelu.summary tells what convert left, and why)"
        )
    lazy = [name for name, (first, *_) in units.items() if is_lazy(first.t_r)]
    if lazy:
        raise ValueError(
            f"{', '.join(lazy)}: the number of channels is not known yet. Run the model on a batch "
            "before you build the optimizer and AdaptiveInit"
        )
    computed = [name for name, (first, *_) in units.items() if "t_r" not in first._parameters]
    if computed:
        raise ValueError(
            f"{', '.join(computed)}: t_r is computed from other parameters (a parametrization, or "
            "pruning), so adapt cannot set it. Make it a parameter again first"
        )


def _thresholds(units: list[SReLU], search: QuantileSearch) -> tuple[Tensor, dict[str, Any]]:
    """The new ``t_r`` of a unit, whole, and the facts about it, as plain numbers."""
    t_r, t_l = whole(units[0].t_r), whole(units[0].t_l)
    free = torch.stack([whole(unit.a_r) == 1 for unit in units]).all(0)
    new = torch.where(free, search.values.to(t_r.dtype), t_r)
    # Of a t_r that stays nobody has counted what lies beyond.
    beyond = (1 - search.below.double() / search.count).expand_as(new)[free]
    facts = {
        "channels": len(t_r),
        "inputs": search.count,
        "t_r": [f(new).item() for f in (torch.min, torch.median, torch.max)],
        "beyond": beyond.mean().item() if len(beyond) else None,
        "crossed": int((new < t_l).sum()),
        "dead": int((search.largest <= 0).expand_as(new).sum()),
        "kept": int((~free).sum()),
    }
    return new, facts


def _check_fit(thresholds: dict[str, Tensor]) -> None:
    """Raises an error if a quantile is beyond what the dtype of its parameter can hold."""
    for name, t_r in thresholds.items():
        if not t_r.isfinite().all():
            raise NotFiniteError(
                f"{name}: the quantile of its inputs is too large for t_r in {t_r.dtype}. Keep the "
                "parameters in a wider dtype, or find out why its inputs are so large"
            )


def _row(name: str, facts: dict[str, Any]) -> tuple[str, ...]:
    spread = " .. ".join(f"{value:.4g}" for value in facts["t_r"])
    counts = (str(facts[column]) for column in ("crossed", "dead", "kept"))
    size = (str(facts["channels"]), str(facts["inputs"]))
    beyond = "-" if facts["beyond"] is None else f"{facts['beyond']:.2%}"
    return (name, *size, spread, beyond, *counts)


def _write(parameter: Tensor, value: Tensor) -> None:
    """Copies a whole tensor into a parameter; each process its shard where it is sharded."""
    if hasattr(parameter, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor  # heavy, and needed only here

        value = distribute_tensor(value, parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]
    parameter.copy_(value)


def _repeated(loader: Any) -> int:
    """How many samples DistributedSampler gives out twice, to serve all processes equally."""
    return sum(
        max(0, sampler.total_size - len(sampler.dataset))  # type: ignore[arg-type]
        for sampler in samplers(loader)
        if isinstance(sampler, DistributedSampler)
    )
