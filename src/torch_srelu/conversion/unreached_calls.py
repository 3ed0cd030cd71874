"""Activations in the source code of a network that no run has come to."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType

from torch import Tensor, nn

from . import source_rewriting as rewrite
from .call_observer import Call, evaluate
from .rectifiers import FUNCTIONS, MODULES, is_activation

_NAMES = {function: kind.__name__ for kind, function in MODULES.items()}
_FUNCTIONS = {f.__name__ for f in FUNCTIONS}
_METHODS = {f.__name__ for f in FUNCTIONS if getattr(Tensor, f.__name__, None) is f}


def unreached(model: nn.Module, calls: Iterable[Call]) -> dict[tuple[nn.Module, str], str]:
    """Calls of functions and of methods of tensors that ``calls`` lack: {(module, what): why}.

    Activation modules that were not called are no matter of the source, and are told elsewhere.
    """
    calls = list(calls)
    reached = {(c.place.owner, c.place.end) for c in calls if c.place}
    elsewhere = {c.where for c in calls if not c.place}  # in decorated methods, among others
    left = {}
    methods = {cls: _methods(cls) for cls in {type(m) for m in model.modules()}}
    for module in model.modules():
        for function in methods[type(module)]:
            file = Path(function.__code__.co_filename).name
            for call in rewrite.calls_in(function):
                end = call.end_lineno, call.end_col_offset
                name = _activation(call, function, module)
                where = f"{function.__qualname__}, {file}:{call.lineno}"
                if name and (module, end) not in reached and where not in elsewhere:
                    left[module, f"{name} in {where}"] = "the example did not reach it"
    return left


def _methods(cls: type) -> list[FunctionType]:
    """The methods that a class has, without their decorators, but for those of torch itself."""
    found = (inspect.getattr_static(cls, name) for name in dir(cls))
    plain = (inspect.unwrap(method) for method in found if isinstance(method, FunctionType))
    return [
        function
        for function in plain
        if isinstance(function, FunctionType)
        and not (function.__module__ or "").startswith("torch.")
    ]


def _activation(call: ast.Call, function: FunctionType, module: nn.Module) -> str | None:
    """The name of the activation that an expression calls, if it can be told without running."""
    receiver = next(iter(function.__code__.co_varnames), "")
    callee = None
    match call.func:
        case ast.Name(name):
            callee = function.__globals__.get(name)
        case ast.Attribute(ast.Name(owner), name) if owner == receiver:
            callee = vars(module).get(name)
        case ast.Attribute(owner, name) if name in _FUNCTIONS:
            # Nothing else is evaluated: attributes may be properties, which do as they like.
            callee = evaluate(call.func, function.__globals__, {receiver: module})
            if callee is None and name in _METHODS:
                return _NAMES[name.rstrip("_")]
    while isinstance(callee, functools.partial):
        callee = callee.func
    if isinstance(callee, nn.Module) or not is_activation(callee):
        return None
    return _NAMES[callee.__name__.rstrip("_")]  # type: ignore[union-attr]
