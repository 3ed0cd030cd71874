"""Records every activation that a network calls in a run: where, on what, and in which layout."""

from __future__ import annotations

import ast
import functools
import itertools
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, FunctionType, MethodDescriptorType, MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..ops.arguments import DTYPES
from .channel_rules import tensors_in
from .channel_tracking import ChannelLayout, ChannelTracker
from .rectifiers import FUNCTIONS, MODULES, Rectifier, activation_name
from .source_rewriting import Position, call_at, input_of, method_with

# Frames of these modules lie between a call in a network and the function that it calls.
_SKIPPED = {"torch.overrides", "torch.nn.functional", "torch.nn.modules.module"}


class ActivationSlot(NamedTuple):
    """An activation module, and the module and name that it is registered under."""

    parent: nn.Module
    name: str
    module: nn.Module


class CallSite(NamedTuple):
    """A call expression in a method of a module of the network."""

    owner: nn.Module
    method: str
    end: Position
    is_method: bool  # x.relu()
    keyword: bool  # a module gets its input as input=x, a name that SReLU does not have


@dataclass
class ActivationCall:
    """One call of an activation in the run."""

    activation: Rectifier
    slot: ActivationSlot | None  # the module that was called; None for a function
    site: CallSite | None  # None: not in a method of a module
    where: str  # the site in words
    problem: str | None  # why the call cannot be rewritten
    layout: ChannelLayout
    dtype: torch.dtype
    unsupported: str | None  # why no unit can compute the same
    device: torch.device
    layers: frozenset[int]  # which made the input
    iteration: int  # how often this run of the method had reached the site before
    read_again: bool = False  # the network reads the input after an in-place call
    seen_outside: bool = False  # the caller of the network may do so
    on_weights: bool = False  # an in-place call on the memory of a parameter or a buffer


def slots_of(model: nn.Module) -> list[ActivationSlot]:
    """Every activation module of the network, once for each name that it is registered under."""
    return [
        ActivationSlot(parent, name, child)
        for parent in model.modules()
        for name, child in parent._modules.items()
        if child is not None and type(child) in MODULES
    ]


class CallObserver(ChannelTracker):
    """Records the activations of a run in ``calls``.

    Args:
        model: The network.
        inputs: Its arguments in this run.
        slots: The slot of every activation module, by the identity of the module.
    """

    def __init__(self, model: nn.Module, inputs: object, slots: dict[int, ActivationSlot]) -> None:
        super().__init__(model, inputs)
        self.calls: list[ActivationCall] = []
        self._modules = {id(m) for m in model.modules()}
        self._constants = {id(t) for t in itertools.chain(model.parameters(), model.buffers())}
        self._slots = slots
        self._visits: Counter = Counter()
        # By identity, the storages that an in-place activation has overwritten; held, so that no
        # other storage gets the same identity.
        self._overwritten: dict[int, tuple[Any, ActivationCall]] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        recognize = FUNCTIONS.get(func)
        call = recognize and self._call(recognize(*args, **kwargs), func, args, kwargs)
        out = func(*args, **kwargs)
        if self._overwritten and tensors_in(out):
            for writer in self.writers((args, kwargs)):
                writer.read_again = True
        if call is not None and call.activation.inplace:
            # The result moves to new memory: whatever reads the old memory reads the input again.
            storage = out.untyped_storage()
            out = out.clone()
            self._overwritten[id(storage)] = storage, call
        self.record(func, args, kwargs, out)
        return out

    def __exit__(self, *args) -> None:
        super().__exit__(*args)
        self._visits.clear()  # frames, and all tensors in them

    def writers(self, values: object) -> Iterator[ActivationCall]:
        """The in-place activations that have overwritten one of these tensors."""
        for x in tensors_in(values):
            if x.layout == torch.strided and id(x.untyped_storage()) in self._overwritten:
                yield self._overwritten[id(x.untyped_storage())][1]

    def _call(self, activation: Rectifier, func, args, kwargs) -> ActivationCall:
        x = args[0] if args else kwargs["input"]
        frame = _calling_frame(sys._getframe(2))
        slot, callee = None, func
        if type(module := receiver(frame)) in MODULES:  # the forward of an activation module
            callee = module
            slot = self._slots.get(id(callee))
            activation = activation._replace(kind=type(callee))
            frame = _calling_frame(frame.f_back)
        site, problem = self._locate(frame, callee)
        unsupported = _unsupported(x)
        if activation.slope is not None and id(activation.slope) not in self._constants:
            unsupported = "its slopes are computed in the forward pass"
            activation = activation._replace(slope=None)  # it ends with the run
        visit = frame, frame.f_lasti, slot
        self._visits[visit] += 1
        code = frame.f_code
        call = ActivationCall(
            activation,
            slot,
            site,
            where=f"{code.co_qualname}, {Path(code.co_filename).name}:{frame.f_lineno}",
            problem=problem,
            layout=self.layout(x),
            dtype=x.dtype,
            unsupported=unsupported,
            device=x.device,
            layers=self.info(x).layers,
            iteration=self._visits[visit] - 1,
        )
        self.calls.append(call)
        return call

    def _locate(self, frame: FrameType, callee: object) -> tuple[CallSite | None, str | None]:
        """The site of the call that ``frame`` is in, and why it cannot be rewritten, if so."""
        if (found := self._method(frame)) is None:
            return None, "called in a function that is not a method of a module, or is decorated"
        owner, name, function = found
        positions = frame.f_code.co_positions()
        _, line, _, column = next(itertools.islice(positions, frame.f_lasti // 2, None))
        if line is None or column is None:
            return None, "Python was started without column numbers (-X no_debug_ranges)"
        is_method = isinstance(callee, MethodDescriptorType)
        expression = call_at(function, (line, column))
        keywords = expression.keywords if expression and isinstance(callee, nn.Module) else ()
        keyword = any(keyword.arg in ("input", None) for keyword in keywords)
        site = CallSite(owner, name, (line, column), is_method, keyword)
        if getattr(type(owner), name) is not function:
            return site, f"called in a {name}() that is reached through super()"
        if all(caller.f_code is not function.__code__ for caller, _ in traceback.walk_stack(frame)):
            # A lambda that ``__init__`` has put into an attribute stays as it is when the source
            # of ``__init__`` is rewritten.
            return site, f"called in a function that {name}() has made before"
        if _is_wrapped(function, owner):
            return site, f"an attribute of the module wraps its {name}(): convert before wrapping"
        if expression is None:
            return site, "the source code of the call cannot be read"
        if not _calls(expression, callee, frame) or input_of(expression, is_method) is None:
            return site, "called indirectly"
        if not is_method and _has_variable(expression.func, frame, function):
            return site, "called through a variable, which may hold another function next time"
        return site, None

    def _method(self, frame: FrameType) -> tuple[nn.Module, str, FunctionType] | None:
        """The module that ``frame`` runs a method of, or a function written inside a method."""
        for outer, _ in traceback.walk_stack(frame):
            module = receiver(outer)
            if id(module) in self._modules and isinstance(module, nn.Module):
                found = method_with(type(module), frame.f_code)
                return found and (module, *found)
        return None


def _is_wrapped(function: FunctionType, module: nn.Module) -> bool:
    """Whether an attribute of ``module`` holds its method ``function`` inside another callable.

    As after ``net.forward = torch.compile(net.forward)``, which would go on to call the old method.
    A bound method alone, as after ``net.forward = net.other``, is replaced with the class.
    """
    return any(
        not isinstance(value, (nn.Module, MethodType)) and function in _callables_in(value)
        for value in vars(module).values()
        if callable(value)
    )


def _callables_in(callee: Any) -> Iterator[object]:
    """A callable and those inside it: of partials, decorated functions and bound methods."""
    for _ in range(8):  # a limit, for objects that have an attribute of every name
        yield callee
        if isinstance(callee, functools.partial):
            callee = callee.func
        elif isinstance(callee, MethodType):
            callee = callee.__func__
        else:
            callee = getattr(callee, "__wrapped__", None)


def _unsupported(x: Tensor) -> str | None:
    if x.dtype not in DTYPES:
        return f"its input is {x.dtype}"
    if x.is_nested:
        return "its input is a nested tensor"
    return None if x.layout == torch.strided else f"its input is {x.layout}"


def _calls(expression: ast.Call, callee: object, frame: FrameType) -> bool:
    """Whether the expression itself calls ``callee``, rather than something that calls it."""
    function = expression.func
    if isinstance(callee, MethodDescriptorType):  # x.relu(), not torch.Tensor.relu(x)
        return (
            isinstance(function, ast.Attribute)
            and function.attr == callee.__name__
            and not isinstance(evaluate(function.value, frame.f_globals, frame.f_locals), type)
        )
    value = evaluate(function, frame.f_globals, frame.f_locals)
    return value is callee or (not isinstance(callee, nn.Module) and bool(activation_name(value)))


def _has_variable(expression: ast.expr, frame: FrameType, function: FunctionType) -> bool:
    """Whether the expression contains a local variable other than ``self``."""
    code = frame.f_code
    variables = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    variables -= {function.__code__.co_varnames[0], *function.__code__.co_freevars}
    return any(isinstance(n, ast.Name) and n.id in variables for n in ast.walk(expression))


def evaluate(expression: ast.expr, globals: dict[str, Any], locals: Mapping[str, Any]) -> object:
    """The value of an expression of names, attributes and indices; None where it has none."""
    harmless = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.expr_context)
    if not all(isinstance(node, harmless) for node in ast.walk(expression)):
        return None
    try:
        return eval(compile(ast.Expression(expression), "<callee>", "eval"), globals, locals)
    except Exception:  # a name of an enclosing function, a property that fails
        return None


def receiver(frame: FrameType) -> object:
    """``self``, if the frame is a method's."""
    names = frame.f_code.co_varnames
    return frame.f_locals.get(names[0]) if names else None


def _calling_frame(frame: FrameType | None) -> FrameType:
    """The innermost frame that is not one of torch's own on the way to a function."""
    frames = (outer for outer, _ in traceback.walk_stack(frame))
    return next(outer for outer in frames if outer.f_globals.get("__name__") not in _SKIPPED)
