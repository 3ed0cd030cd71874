"""Finds activations in the source code of a network that no trial run has called."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType

from torch import Tensor, nn

from .call_observer import ActivationCall, evaluate
from .rectifiers import FUNCTIONS, activation_name
from .source_rewriting import calls_in

_FUNCTIONS = {f.__name__ for f in FUNCTIONS}
_METHODS = {f.__name__: f for f in FUNCTIONS if getattr(Tensor, f.__name__, None) is f}


def unreached_calls(
    model: nn.Module, calls: Iterable[ActivationCall]
) -> dict[tuple[nn.Module, str], str]:
    """Calls of functions and of methods of tensors that ``calls`` lack: {(module, what): why}.

    Activation modules that were not called need no source code and are listed elsewhere.
    """
    calls = list(calls)
    reached = {(c.site.owner, c.site.end) for c in calls if c.site}
    without_site = {c.where for c in calls if not c.site}  # in decorated methods, among others
    left = {}
    methods = {cls: _methods(cls) for cls in {type(m) for m in model.modules()}}
    for module in model.modules():
        for function in methods[type(module)]:
            file = Path(function.__code__.co_filename).name
            for call in calls_in(function):
                end = call.end_lineno, call.end_col_offset
                name = _activation(call, function, module)
                where = f"{function.__qualname__}, {file}:{call.lineno}"
                if name and (module, end) not in reached and where not in without_site:
                    left[module, f"{name} in {where}"] = "the example did not reach it"
    return left


def _methods(cls: type) -> list[FunctionType]:
    """The methods of a class without their decorators, except those of torch itself."""
    found = (inspect.getattr_static(cls, name) for name in dir(cls))
    plain = (inspect.unwrap(method) for method in found if isinstance(method, FunctionType))
    return [
        function
        for function in plain
        if isinstance(function, FunctionType)
        and not (function.__module__ or "").startswith("torch.")
    ]


def _activation(call: ast.Call, function: FunctionType, module: nn.Module) -> str | None:
    """The name of the activation that an expression calls, if that is known without running it."""
    receiver = next(iter(function.__code__.co_varnames), "")
    callee = None
    match call.func:
        case ast.Name(name):
            callee = function.__globals__.get(name)
        case ast.Attribute(ast.Name(owner), name) if owner == receiver:
            callee = vars(module).get(name)
        case ast.Attribute(owner, name) if name in _FUNCTIONS:
            # Nothing else is evaluated: attributes may be properties with side effects.
            callee = evaluate(call.func, function.__globals__, {receiver: module})
            if callee is None and name in _METHODS:
                callee = _METHODS[name]
    return None if isinstance(callee, nn.Module) else activation_name(callee)
