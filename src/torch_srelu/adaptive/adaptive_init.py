"""The paper's initialisation of SReLU: freeze, measure, set ``t_r``, unfreeze."""

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

from .. import _data_parallel as parallel
from .._text import counted, text_table
from .._torch_compat import in_backward, uncompiled_name
from ..module import SReLU, check_is_module
from ..optim import check_optimizer, clear_state, srelu_parameters
from .input_measurement import Forward, InputMeasurement, run_batch
from .loader_replay import component_loaders, samplers
from .quantile_search import NotFiniteError, QuantileSearch

SCOPES = ("channel", "layer")
_MEMORY = 128 * 2**20  # bytes for the searches of all channels together
_MIN_BINS, _MAX_BINS = 256, 65536  # of a channel: fewer cost passes, more would gain nothing


class AdaptiveInit:
    """The paper's initialisation: SReLU is frozen first, then ``t_r`` is set from the data.

    From construction until `adapt`, the four parameters of every SReLU are frozen: their gradients
    are zeros, so that the network trains as the one it was (with the defaults, with leaky ReLUs of
    slope 0.2). `adapt` sets ``t_r`` of each channel to a quantile of all inputs of that channel
    over the training data, exactly, and unfreezes them. Construct it before the first step: an
    optimizer that already has momentum for these parameters would move them.

    Args:
        model: A network with SReLU units; wrapped by DistributedDataParallel, sharded by
            `fully_shard` or compiled as you like.
        optimizer: The optimizer that trains it. It must hold the SReLU parameters without weight
            decay, as `param_groups` arranges; `adapt` clears its state for them.
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
        """Whether `adapt` has run, here or before the state was saved."""
        return self._result is not None

    def adapt(self, loader: Iterable[Any], forward: Forward | None = None) -> None:
        """Sets ``t_r`` from the data and unfreezes SReLU.

        The network reads all of ``loader`` two or three times (once, as a rule, if the inputs of
        the units have a 16-bit dtype), in eval mode and under the autocast context of the caller.
        Each pass starts from the same random state, so a DataLoader may shuffle and augment;
        afterwards all random generators are as they were. ``t_r`` is set where ``a_r`` is 1: there
        it changes no output, elsewhere it would. Where several processes train together, all must
        call `adapt`, each with its share of the data, which may differ in length; buffers, such as
        running statistics, become those of rank 0 where DistributedDataParallel would broadcast
        them in the next forward pass. After an error all else is as before.

        Memory: at most 128 MB besides one batch in eval mode, for networks of up to 65,536
        channels; where there are no kernels (`backends`), also six times the input of one unit.

        Args:
            loader: All training data, readable more than once. A batch is the input, a sequence
                that starts with it, or a dict of keyword arguments for the network; it is moved
                to the device of the network.
            forward: ``forward(network, batch)`` runs the network on a batch, where that is not
                enough.
        """
        if self.adapted:
            raise RuntimeError(
                "adapt was done already: t_r is trained by now, and would lose what it learned"
            )
        if in_backward():
            raise RuntimeError("adapt cannot run inside a backward pass: call it between two steps")
        # Once more: a schedule of weight decay reaches all groups, and then a_r is no longer 1.
        check_optimizer(self.model, self.optimizer)
        group = parallel.process_group(self.model)
        with parallel.raise_on_all_ranks(group):
            _check_loader(loader)
        with torch.inference_mode(False), torch.no_grad():
            units = _units(self.model)
            searches = self._searches(units, group)
            InputMeasurement(self.model, searches, units, loader, forward or run_batch, group).run()
            found = {
                name: _thresholds(name, units[name], search) for name, search in searches.items()
            }
            for name, (t_r, _) in found.items():
                parallel.copy_full_tensor(units[name][0].t_r, t_r)
        clear_state(self.optimizer, srelu_parameters(self.model).values())
        self._result = {name: facts for name, (_, facts) in found.items()}
        self._repeated = _repeated(loader)
        self._freeze(False)

    def state_dict(self) -> dict[str, Any]:
        """The phase and the results of `adapt`; ``t_r`` is in the state_dict of the model.

        The same keys in every phase, and the results as one string, because
        torch.distributed.checkpoint loads into an existing structure.
        """
        return {
            "quantile": self.quantile,
            "scope": self.scope,
            "result": "" if self._result is None else json.dumps(self._result),
            "repeated": self._repeated,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the phase of a saved run: frozen before `adapt`, not frozen after it."""
        if missing := [name for name in self.state_dict() if name not in state]:
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
        lines = [
            f"t_r is the {self.quantile:g} quantile of the inputs of each {self.scope}, "
            "where a_r was 1",
            text_table(head, (_row(name, facts) for name, facts in self._result.items())),
        ]
        if self._repeated:
            samples = counted(self._repeated, "sample")
            lines.append(f"{samples} read twice: DistributedSampler pads its last round")
        return "\n".join(lines)

    def _freeze(self, frozen: bool) -> None:
        for units in _units(self.model).values():
            for unit in units:
                unit.frozen = frozen

    def _searches(
        self, units: dict[str, list[SReLU]], group: dist.ProcessGroup | None
    ) -> dict[str, QuantileSearch]:
        size = {n: 1 if self.scope == "layer" else u[0].num_channels for n, u in units.items()}
        bins = min(_MAX_BINS, max(_MIN_BINS, _MEMORY // (8 * sum(size.values()))))
        device = parallel.compute_device
        return {
            n: QuantileSearch(
                size[n], self.quantile, bins=bins, device=device(u[0].t_r), group=group
            )
            for n, u in units.items()
        }


def _check_loader(loader: Iterable[Any]) -> None:
    if isinstance(loader, Tensor) or not isinstance(loader, Iterable):
        raise TypeError(
            f"the loader is a {type(loader).__name__}: give a DataLoader or a list of batches"
        )
    once = next((part for part in component_loaders(loader) if isinstance(part, Iterator)), None)
    if once is not None:
        raise TypeError(
            f"the loader is a {type(once).__name__}, which can be read only once, but "
            "adapt reads it several times: give a DataLoader or a list of batches"
        )


def _units(model: nn.Module) -> dict[str, list[SReLU]]:
    """The units of the network by name; those that share ``t_r`` under the name of the first."""
    found: dict[nn.Parameter, tuple[str, list[SReLU]]] = {}
    for name, module in parallel.unwrap(model).named_modules():
        if isinstance(module, SReLU):
            name = uncompiled_name(name) or type(module).__name__
            found.setdefault(module.t_r, (name, []))[1].append(module)
    return dict(found.values())


def _check_model(model: nn.Module) -> None:
    check_is_module(model, ": AdaptiveInit(model, optimizer)")
    if not (units := _units(model)):
        raise ValueError(
            f"{type(parallel.unwrap(model)).__name__} has no SReLU: put some in, or convert the "
            "model (torch_srelu.summary tells what convert left, and why)"
        )
    if lazy := [name for name, (first, *_) in units.items() if is_lazy(first.t_r)]:
        raise ValueError(
            f"{', '.join(lazy)}: the number of channels is not known yet. Run the model on a batch "
            "before you build the optimizer and AdaptiveInit"
        )
    if computed := [n for n, (u, *_) in units.items() if not isinstance(u.t_r, nn.Parameter)]:
        raise ValueError(
            f"{', '.join(computed)}: t_r is computed from other parameters (a parametrization, or "
            "pruning), so adapt cannot set it. Make it a parameter again first"
        )


def _thresholds(
    name: str, units: list[SReLU], search: QuantileSearch
) -> tuple[Tensor, dict[str, Any]]:
    """The new ``t_r`` of a unit, not sharded, and numbers about it for the summary."""
    t_r, t_l = parallel.full_tensor(units[0].t_r), parallel.full_tensor(units[0].t_l)
    free = torch.stack([parallel.full_tensor(unit.a_r) == 1 for unit in units]).all(0)
    new = torch.where(free, search.values.to(t_r.dtype), t_r)
    if not new.isfinite().all():
        raise NotFiniteError(
            f"{name}: the quantile of its inputs is too large for t_r in {new.dtype}. Keep the "
            "parameters in a wider dtype, or find out why its inputs are so large"
        )
    # Inputs were counted against the quantile, so not against a t_r that is left as it was.
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


def _row(name: str, facts: dict[str, Any]) -> tuple[str, ...]:
    spread = " .. ".join(f"{value:.4g}" for value in facts["t_r"])
    beyond = "-" if facts["beyond"] is None else f"{facts['beyond']:.2%}"
    facts = {**facts, "t_r": spread, "beyond": beyond}
    return (name, *map(str, facts.values()))


def _repeated(loader: Any) -> int:
    """How many samples DistributedSampler repeats, to give all processes equally many."""
    return sum(
        max(0, sampler.total_size - len(sampler.dataset))  # type: ignore[arg-type]
        for sampler in samplers(loader)
        if isinstance(sampler, DistributedSampler)
    )
