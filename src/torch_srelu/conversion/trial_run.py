"""Runs a network to see which activations it calls, and leaves it exactly as it was.

Runs on fake tensors, which have shapes but no values, so it costs little and moves nothing; a
network that needs values is run on the real example.
"""

from __future__ import annotations

import copy
import logging
import random
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map_only

from ..adaptive.loader_replay import RandomState
from . import example_inputs as inputs
from .call_observer import Call, Observer, slots_of
from .child_iteration import asked_for_children
from .fake_tensors import Fakes
from .leftover_tensors import Leftovers
from .network_state import State, tensors_in

# The attributes of a module that hold hooks.
HOOKS = tuple(name for name in vars(nn.Module()) if name.endswith("hooks") or "_hooks_" in name)

HOOKS_OFF = "convert runs the network without its hooks: what they store or change is not there"

# Runs in training mode of a network with a loop: one that drops layers at random shows it in some.
LOOP_RUNS = 8


@dataclass
class Observed:
    """What the runs in evaluation and in training mode showed."""

    calls: list[Call]
    failure: str | None  # why the network could not be run in training mode


def observe(model: nn.Module, example: object) -> Observed:
    """Runs the network in evaluation and in training mode on shapes like those of ``example``.

    Without an example, an input is made up from the first layer.

    Raises:
        ValueError: The network cannot be run.
    """
    fakes = Leftovers()
    try:
        observed = _try(model, example, fakes)
    except Exception:
        fakes.warn(type(model).__name__)
        raise
    fakes.warn(type(model).__name__)
    return observed


def _try(model: nn.Module, example: object, fakes: Leftovers) -> Observed:
    if example is not None:
        with suppress(Exception):
            observed = _observe(model, example, fakes)
            if not observed.failure:
                return observed
        return _observe(model, example, None)  # it needs values; or fails for good
    best: tuple[object, Observed] | None = None
    failure: Exception | None = None
    for candidate in inputs.candidates(model):
        try:
            observed = _observe(model, candidate, fakes)
        except Exception as error:
            failure = error
            continue
        if not observed.failure:
            return observed
        best = best or (candidate, observed)
    if best is None:
        reason = f": {_in_words(failure)}" if failure else ""
        raise ValueError(
            f"cannot tell what input {type(model).__name__} takes{reason}\n"
            "Pass one as example=: a tensor, a tuple of positional or a dict of keyword arguments."
        ) from failure
    candidate, observed = best
    with suppress(Exception):
        return _observe(model, candidate, None)  # training mode may need values
    return observed


def _observe(model: nn.Module, example: object, fakes: Leftovers | None) -> Observed:
    """The runs on one example: on fake tensors, or, without ``fakes``, with its values."""
    calls = _run(model, example, fakes, training=False)
    try:
        calls = calls + _run(model, example, fakes, training=True)
        if any(call.turn for call in calls):
            for seed in range(1, LOOP_RUNS):
                calls += _run(model, example, fakes, training=True, seed=seed)
        return Observed(calls, None)
    except Exception as error:
        return Observed(calls, _in_words(error))


def _run(
    model: nn.Module, example: object, fakes: Leftovers | None, training: bool, seed: int = 0
) -> list[Call]:
    if fakes is None:
        return _watch(model, example, None, training, seed)
    handled = sys.exception()  # of the caller, whose frames are none of our business
    try:
        return _watch(model, example, Fakes(fakes.made), training, seed)
    except Exception as error:
        _clear_frames(error, handled)
        raise
    finally:
        fakes.clear()


def _in_words(error: Exception) -> str:
    notes = getattr(error, "__notes__", ())
    return "; ".join([f"{type(error).__name__}: {error}", *notes])


def _clear_frames(error: BaseException | None, until: BaseException | None) -> None:
    """Lets go of the local variables in a traceback, tensors among them, and keeps its lines."""
    seen = {id(until)}  # an error may be its own cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            with suppress(RuntimeError):  # one that still runs
                frame.clear()
            dict(frame.f_locals)  # until Python 3.12 a frame keeps a copy: brings it up to date
        error = error.__cause__ or error.__context__


def _watch(
    model: nn.Module, example: object, mode: Fakes | None, training: bool, seed: int
) -> list[Call]:
    with untouched(model, values=mode is None), running(model, training, mode):
        _seed(seed)
        slots = {}
        for slot in slots_of(model):
            # A stand-in for each slot: one module may be in several, or be called past its slot.
            slot.parent._modules[slot.name] = stand_in = copy.copy(slot.module)
            slots[id(stand_in)] = slot
        args, kwargs = _arguments(_copy(example, mode))
        given = tree_leaves((args, kwargs))  # now: the network may take tensors out of a list
        with Observer(model, (args, kwargs), slots) as observer:
            with asked_for_children() as asked:
                out = model(*args, **kwargs)
            for call in observer.calls:
                call.among_children = call.place is not None and id(call.place.owner) in asked
            weights = [t for t in (*model.parameters(), *model.buffers()) if not is_lazy(t)]
            # A weight is itself or, in a function, the fake that was made of it.
            faked = mode.fake(weights) if mode else []
            # In objects, too, that are no trees to torch, and in what the network has kept.
            found = tensors_in([*tree_leaves(out), *map(vars, model.modules())])
            kept = [t for t in found if not is_lazy(t)]
            for call in observer.writers((kept, given, args, kwargs)):
                call.seen_outside = True
            for call in observer.writers((weights, faked)):
                call.on_weights = True
        return observer.calls


def _copy(example: object, mode: Fakes | None) -> object:
    """The example, fit for the run: a copy, because an in-place activation may change it."""
    return tree_map_only(Tensor, lambda x: (mode.fake(x) if mode else x.detach()).clone(), example)


def _seed(seed: int) -> None:
    """Makes a run independent of the random state around it, which `running` puts back."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def _arguments(example: Any) -> tuple[tuple, dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example if isinstance(example, tuple) else (example,)), {}


@contextmanager
def running(model: nn.Module, training: bool, mode: Fakes | None) -> Iterator[None]:
    """The conditions of a run."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.callback(RandomState().restore)
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and importing it takes long
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        model.train(training)
        if mode is not None:
            stack.enter_context(_quiet("torch._subclasses.fake_tensor"))  # it logs what we catch
            stack.enter_context(mode)
        yield


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def untouched(model: nn.Module, values: bool) -> Iterator[None]:
    """Takes the hooks off for the time of a run, and puts everything back as it was after it.

    Args:
        model: The network.
        values: Whether the run computes with values, and so may change those of the network.
    """
    modules, state = list(model.modules()), State(model, values)
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    try:
        for module in modules:
            for name in HOOKS:
                object.__setattr__(module, name, type(vars(module)[name])())
        yield
    except Exception as error:
        if hooked:
            error.add_note(HOOKS_OFF)
        raise
    finally:
        state.restore()
