"""Notes every activation that a network calls: where, on what, and in which layout."""

from __future__ import annotations

import ast
import functools
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..ops.arguments import DTYPES
from . import source_rewriting as rewrite
from .channel_flow import Flow, Layout
from .rectifiers import MODULES, Activation, is_activation, recognise

# Frames of these modules lie between a call in a network and the function that it calls.
_PLUMBING = {"torch.overrides", "torch.nn.functional", "torch.nn.modules.module", "torch._tensor"}


@dataclass(frozen=True)
class Slot:
    """An activation module and its place in the tree."""

    parent: nn.Module
    name: str
    module: nn.Module


@dataclass(frozen=True)
class Place:
    """A call expression in a method of a module of the network."""

    owner: nn.Module
    method: str
    end: rewrite.Position
    form: rewrite.Form
    keyword: bool = False  # the input of a module is given as input=x, a name that no unit knows


@dataclass
class Call:
    """One activation, as it was called in the run."""

    activation: Activation
    slot: Slot | None  # the module that was called; None for a function
    place: Place | None  # None: not in a method of a module
    where: str  # the place in words
    problem: str | None  # why the call cannot be rewritten
    computed: bool  # its slopes are made in the forward pass
    layout: Layout
    dtype: torch.dtype
    unfit: str | None  # what no unit takes: a dtype, a layout
    device: torch.device
    layers: frozenset[int]  # which made the input
    turn: int  # how often this run of the method had come here before
    read_again: bool = False  # the network reads the input after an in-place call
    seen_outside: bool = False  # whoever called the network may do so
    among_children: bool = False  # the network runs over all children of the module that calls it
    on_weights: bool = False  # an in-place call on the memory of a parameter or a buffer


def slots_of(model: nn.Module) -> list[Slot]:
    """Every activation module of the network, once for each place where it is registered."""
    return [
        Slot(parent, name, child)
        for parent in model.modules()
        for name, child in parent._modules.items()
        if child is not None and type(child) in MODULES
    ]


class Observer(Flow):
    """Notes the activations of a run in ``calls``."""

    def __init__(self, model: nn.Module, inputs: object, slots: dict[int, Slot]) -> None:
        super().__init__(model, inputs)
        self.calls: list[Call] = []
        self._modules = {id(m) for m in model.modules()}
        self._constants = {id(t) for t in itertools.chain(model.parameters(), model.buffers())}
        self._slots = slots
        self._turns: Counter = Counter()
        # Memory that an in-place activation has overwritten; kept, so that no other has its key.
        self._overwritten: dict[int, tuple[Any, Call]] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        activation = recognise(func, args, kwargs)
        call = activation and self._note(activation, func, args, kwargs)
        out = func(*args, **kwargs)
        if self._overwritten and _has_tensor(out):
            for writer in self.writers((args, kwargs)):
                writer.read_again = True
        if call is not None and call.activation.inplace:
            # The result moves elsewhere: whoever touches the old memory reads the input again.
            storage = out.untyped_storage()
            out = out.clone()
            self._overwritten[storage._cdata] = storage, call
        self.follow(func, args, kwargs, out)
        return out

    def __exit__(self, *args) -> None:
        super().__exit__(*args)
        self._turns.clear()  # frames, and all tensors in them

    def writers(self, values: object) -> Iterator[Call]:
        """The in-place activations that have changed one of these tensors."""
        for x in tree_leaves(values):
            if isinstance(x, Tensor) and x.layout == torch.strided:
                found = self._overwritten.get(x.untyped_storage()._cdata)
                if found is not None:
                    yield found[1]

    def _note(self, activation: Activation, func, args, kwargs) -> Call:
        x = args[0] if args else kwargs["input"]
        frame = _outside_plumbing(sys._getframe(2))
        slot, callee = None, func
        if type(_receiver(frame)) in MODULES:  # this is the forward of an activation module
            callee = _receiver(frame)
            slot = self._slots.get(id(callee))
            activation = replace(activation, kind=type(callee))
            frame = _outside_plumbing(frame.f_back)
        place, problem = self._locate(frame, callee)
        slope = activation.slope
        computed = slope is not None and id(slope) not in self._constants
        if computed:
            activation = replace(activation, slope=None)  # it ends with the run
        here = frame, frame.f_lasti, slot
        self._turns[here] += 1
        call = Call(
            activation,
            slot,
            place,
            where=_in_words(frame),
            problem=problem,
            computed=computed,
            layout=self.layout(x),
            dtype=x.dtype,
            unfit=_unfit(x),
            device=x.device,
            layers=self.layers(x),
            turn=self._turns[here] - 1,
        )
        self.calls.append(call)
        return call

    def _locate(self, frame: FrameType, callee: object) -> tuple[Place | None, str | None]:
        """The place of the call that ``frame`` is in, and why it cannot be rewritten, if so."""
        found = self._method(frame)
        if found is None:
            return None, "called in a function that is not a method of a module, or is decorated"
        owner, name, function = found
        positions = frame.f_code.co_positions()
        _, line, _, column = next(itertools.islice(positions, frame.f_lasti // 2, None))
        if line is None or column is None:
            return None, "Python was started without column numbers (-X no_debug_ranges)"
        form = _form(callee)
        expression = rewrite.call_at(function, (line, column))
        keyword = form == "module" and expression is not None and _names_input(expression)
        place = Place(owner, name, (line, column), form, keyword)
        if getattr(type(owner), name) is not function:
            return place, f"called in a {name}() that is reached through super()"
        if not _is_running(function, frame):
            return place, f"called in a function that {name}() has made before"
        if _is_wrapped(function, owner):
            return place, f"the module holds its {name}() wrapped: convert first, then wrap it"
        if expression is None:
            return place, "the source code of the call cannot be read"
        if not _calls(expression, callee, frame) or rewrite.input_of(expression, form) is None:
            return place, "called indirectly"
        if form != "method" and _varies(expression.func, frame, function):
            return place, "called through a variable, which may stand for something else next time"
        return place, None

    def _method(self, frame: FrameType) -> tuple[nn.Module, str, FunctionType] | None:
        """The module that ``frame`` runs a method of, or a function written inside a method."""
        outer: FrameType | None = frame
        while outer is not None:
            module = _receiver(outer)
            if id(module) in self._modules and isinstance(module, nn.Module):
                found = rewrite.method_with(type(module), frame.f_code)
                return found and (module, *found)
            outer = outer.f_back
        return None


def _is_running(function: FunctionType, frame: FrameType | None) -> bool:
    """Whether ``frame`` runs ``function`` or something that it calls.

    A lambda that ``__init__`` has put into an attribute stays what it is, whatever becomes of the
    text of ``__init__``.
    """
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


def _is_wrapped(function: FunctionType, module: nn.Module) -> bool:
    """Whether an attribute of ``module`` holds its method ``function`` in something else.

    As after ``net.forward = torch.compile(net.forward)``, which keeps the method that it has got. A
    method alone, as after ``net.forward = net.other``, is exchanged together with the class.
    """
    return any(
        not isinstance(value, (nn.Module, MethodType)) and function in _layers(value)
        for value in vars(module).values()
        if callable(value)
    )


def _layers(callee: Any) -> Iterator[object]:
    """What is in a callable: in partials, in what decorators have made, and in bound methods."""
    for _ in range(8):  # an end also where an object answers to every name with another one
        yield callee
        if isinstance(callee, functools.partial):
            callee = callee.func
        elif isinstance(callee, MethodType):
            callee = callee.__func__
        else:
            callee = getattr(callee, "__wrapped__", None)


def _form(callee: object) -> rewrite.Form:
    if isinstance(callee, nn.Module):
        return "module"
    return "method" if isinstance(callee, MethodDescriptorType) else "function"


def _unfit(x: Tensor) -> str | None:
    if x.dtype not in DTYPES:
        return str(x.dtype)
    if x.is_nested:
        return "a nested tensor"
    return None if x.layout == torch.strided else str(x.layout)


def _names_input(expression: ast.Call) -> bool:
    return any(keyword.arg in ("input", None) for keyword in expression.keywords)


def _in_words(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_qualname}, {Path(code.co_filename).name}:{frame.f_lineno}"


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
    return value is callee or (not isinstance(callee, nn.Module) and is_activation(value))


def _varies(expression: ast.expr, frame: FrameType, function: FunctionType) -> bool:
    """Whether the expression contains a local variable other than ``self``."""
    code = frame.f_code
    variables = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    variables -= {function.__code__.co_varnames[0], *function.__code__.co_freevars}
    return any(isinstance(n, ast.Name) and n.id in variables for n in ast.walk(expression))


def evaluate(expression: ast.expr, around: dict[str, Any], here: Mapping[str, Any]) -> object:
    """The value of an expression of names, attributes and indices; None where it has none."""
    harmless = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.expr_context)
    if not all(isinstance(node, harmless) for node in ast.walk(expression)):
        return None
    compiled = compile(ast.Expression(expression), "<callee>", "eval")
    try:
        return eval(compiled, around, here)
    except Exception:  # a name of an enclosing function, a property that fails
        return None


def _receiver(frame: FrameType) -> object:
    """``self``, if the frame is a method's."""
    names = frame.f_code.co_varnames
    return frame.f_locals.get(names[0]) if names else None


def _outside_plumbing(frame: FrameType | None) -> FrameType:
    while frame is not None and frame.f_globals.get("__name__") in _PLUMBING:
        frame = frame.f_back
    assert frame is not None, "an activation is called by somebody"
    return frame


def _has_tensor(out: object) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in tree_leaves(out))
