"""Runs a network to see which activations it calls, and leaves it exactly as it was.

The run is on fake tensors, which have shapes but no values, so it costs little and moves nothing; a
network that needs values is run on the real example.
"""

from __future__ import annotations

import copy
import itertools
import logging
import random
import sys
import traceback
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .._torch_compat import (
    FakeTensorMode,
    force_eager,
    has_forward_hooks,
    tree_leaves,
    tree_map_only,
)
from ..adaptive.loader_replay import RandomState
from . import example_inputs
from .call_observer import ActivationCall, CallObserver, slots_of
from .fake_tensors import TrackedFakeMode, new_fake_mode

_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)
_NOT_SEARCHED = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)

Contents = dict[int, tuple[Any, Any]]  # {identity: (container, a copy of it)}
# The attributes of a module that belong to hooks.
HOOKS = tuple(name for name in vars(nn.Module()) if "hook" in name)

# Runs in training mode of a network with a loop: one that drops layers at random shows it in some.
LOOP_RUNS = 8


# The calls in evaluation and in training mode; why the network could not be run in the latter.
TrialResult = tuple[list[ActivationCall], str | None]


def run_on_trial(model: nn.Module, example: object) -> TrialResult:
    """Runs the network in evaluation and in training mode on shapes like those of ``example``.

    Without an example, an input is made up from the first layer.

    Raises:
        ValueError: The network cannot be run.
    """
    mode = new_fake_mode()  # one for all runs: what the network keeps of one fits the next
    try:
        return _first_success(model, example, mode)
    finally:
        if mode is not None:
            mode.warn_of_kept_tensors(type(model).__name__)


def _first_success(model: nn.Module, example: object, mode: TrackedFakeMode | None) -> TrialResult:
    """The result for the example, or for the first of the made-up inputs that fits both modes."""
    candidates = example_inputs.candidates(model) if example is None else [example]
    best: tuple[object, TrialResult] | None = None
    error: Exception | None = None
    for candidate in candidates:
        try:
            result = _runs(model, candidate, mode)
        except Exception as failure:
            error = failure
            continue
        if not result[1]:
            return result
        best = best or (candidate, result)
    if example is not None:
        return _runs(model, example, None)  # it needs values; or fails for good
    if best is None:
        reason = f": {_describe(error)}" if error else ""
        raise ValueError(
            f"no input could be made up that {type(model).__name__} takes{reason}\n"
            "Pass one as example=: a tensor, a tuple of positional or a dict of keyword arguments."
        ) from error
    with suppress(Exception):
        return _runs(model, best[0], None)  # training mode may need values
    return best[1]


def _runs(model: nn.Module, example: object, mode: TrackedFakeMode | None) -> TrialResult:
    """The runs on one example: on fake tensors, or, without ``mode``, with its values."""
    calls = _run(model, example, mode, training=False)
    try:
        calls = calls + _run(model, example, mode, training=True)
        if any(call.iteration for call in calls):
            for seed in range(1, LOOP_RUNS):
                calls += _run(model, example, mode, training=True, seed=seed)
    except Exception as error:
        return calls, _describe(error)
    return calls, None


def _describe(error: Exception) -> str:
    notes = getattr(error, "__notes__", ())
    return "; ".join([f"{type(error).__name__}: {error}", *notes])


def _run(
    model: nn.Module, example: object, mode: TrackedFakeMode | None, training: bool, seed: int = 0
) -> list[ActivationCall]:
    with trial_conditions(model, training, mode):
        _seed(seed)
        return _observe(model, example, mode)


def _observe(model: nn.Module, example: Any, mode: TrackedFakeMode | None) -> list[ActivationCall]:
    slots = {}
    for slot in slots_of(model):
        # A copy for each slot: one module may be in several, or be called in another way.
        slot.parent._modules[slot.name] = replacement = copy.copy(slot.module)
        slots[id(replacement)] = slot
    example = mode.fake(example) if mode else example
    example = tree_map_only(Tensor, torch.clone, example)  # it may be overwritten
    args, kwargs = ((), dict(example)) if isinstance(example, Mapping) else (example, {})
    args = args if isinstance(args, tuple) else (args,)
    given = tree_leaves((args, kwargs))  # now: the network may take tensors out of a list
    with CallObserver(model, (args, kwargs), slots) as observer:
        out = model(*args, **kwargs)
        weights = [t for t in (*model.parameters(), *model.buffers()) if not is_lazy(t)]
        # A weight is itself or, in a function, the fake tensor that was made of it.
        fake_weights = mode.fake(weights) if mode else []
        # Results may be in objects that are no containers to torch; the network may hold some.
        found = tensors_held_by([*tree_leaves(out), *map(vars, model.modules())])
        held = [t for t in found if not is_lazy(t)]
        for call in observer.writers((held, given, args, kwargs)):
            call.seen_outside = True
        for call in observer.writers((weights, fake_weights)):
            call.on_weights = True
    return observer.calls


def _seed(seed: int) -> None:
    """Makes a run independent of the random state, which `trial_conditions` restores."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


@contextmanager
def trial_conditions(
    model: nn.Module, training: bool, mode: TrackedFakeMode | None
) -> Iterator[None]:
    """Runs eagerly, without gradients and hooks; restores the network and the random state.

    Args:
        model: The network.
        training: Whether it is in training mode.
        mode: The mode of a run on fake tensors; without it, values are restored as well.
    """
    modules = list(model.modules())
    hooked = any(map(has_forward_hooks, modules))
    with ExitStack() as stack:
        stack.callback(NetworkState(model, values=mode is None).restore)
        stack.callback(RandomState().restore)
        stack.callback(torch.clear_autocast_cache)  # fake copies of weights, among others
        stack.enter_context(torch.no_grad())
        stack.enter_context(force_eager())
        for module in modules:
            for name in HOOKS:
                object.__setattr__(module, name, type(vars(module)[name])())
        model.train(training)
        if mode is not None:
            logger = logging.getLogger(FakeTensorMode.__module__)  # it logs errors caught here
            stack.callback(setattr, logger, "disabled", logger.disabled)
            logger.disabled = True
            stack.enter_context(mode)
        try:
            yield
        except Exception as error:
            if mode is not None:
                traceback.clear_frames(error.__traceback__)  # their variables are fake tensors
            if hooked:
                error.add_note(
                    "convert runs the network without its hooks: what they store or change is "
                    "missing"
                )
            raise


class NetworkState:
    """The attributes of every module, their contents, and the tensors, until `restore`.

    Contents are plain containers, nested too, and the attributes of other objects that a module
    holds, such as a cache with a class of its own. Not what those hold in turn, which may be a
    trainer with all of its data.

    Args:
        model: The network.
        values: Whether to keep the values of parameters, buffers and tensors in attributes, which
            takes their memory once more. The storage that each tensor has, which assigning
            ``tensor.data`` replaces, is always kept.
    """

    def __init__(self, model: nn.Module, values: bool) -> None:
        self._contents: Contents = {}
        tensors = {id(t): t for t in itertools.chain(model.parameters(), model.buffers())}
        objects = _search([vars(m) for m in model.modules()], self._contents, tensors)
        own = set(tensors)  # those of other objects may be whole data sets: they are not copied
        _search([vars(value) for value in objects], self._contents, tensors)
        self._tensors = [
            (t, t.data, t.detach().clone() if values and key in own else None)
            for key, t in tensors.items()
            if not is_lazy(t)
        ]

    def restore(self) -> None:
        """Restores everything; what has not changed is not touched."""
        for container, before in self._contents.values():
            if not _same(container, before):
                container.clear()
                (container.extend if hasattr(container, "extend") else container.update)(before)
        for tensor, data, value in self._tensors:
            tensor.data = data
            if value is not None:
                # Through data: autograd need not know. In inference mode: tensors that were made
                # in it can be written to in no other.
                with torch.inference_mode():
                    data.copy_(value)


def tensors_held_by(values: list[Any]) -> list[Tensor]:
    """The tensors in these values, as far as `NetworkState` searches."""
    contents: Contents = {}
    tensors: dict[int, Tensor] = {}
    objects = _search(values, contents, tensors)
    _search([vars(value) for value in objects], contents, tensors)
    return list(tensors.values())


def _search(values: list[Any], contents: Contents, tensors: dict[int, Tensor]) -> list[object]:
    """Adds the containers and the tensors in these values, and returns the other objects."""
    objects = []
    while values:
        value = values.pop()
        if isinstance(value, Tensor):
            tensors[id(value)] = value
        elif isinstance(value, tuple):
            values += value
        elif type(value) in _CONTAINERS:
            if id(value) not in contents:
                contents[id(value)] = value, value.copy()
                values += value.values() if isinstance(value, dict) else value
        elif not isinstance(value, _NOT_SEARCHED) and hasattr(value, "__dict__"):
            objects.append(value)
    return objects


def _same(container: Any, before: Any) -> bool:
    """Whether a container holds the same objects in the same order."""
    if isinstance(container, dict):
        container, before = ([*d, *d.values()] for d in (container, before))
    return len(container) == len(before) and all(
        a is b for a, b in zip(container, before, strict=True)
    )
