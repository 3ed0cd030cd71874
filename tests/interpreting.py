"""Patches Triton's interpreter, on import, to take about half the time.

It patches ``triton.language`` for every call of one ``@triton.jit`` function by another, which
takes longer than the computation. Here it does so once in a launch.
"""

import os
from importlib.util import find_spec
from types import FunctionType
from typing import Any


def patch_once_in_a_launch() -> None:
    from triton.runtime import interpreter

    patch: Any = interpreter._patch_lang
    patched: set[str] = set()  # modules of functions, in this launch

    def patch_once(function: FunctionType) -> Any:
        module = function.__globals__["__name__"]
        if module in patched:
            return None  # a call inside a launch ignores the result
        patched.add(module)
        scope = patch(function)
        restore = scope.restore

        def end_launch() -> None:
            patched.clear()
            restore()

        scope.restore = end_launch
        return scope

    interpreter._patch_lang = patch_once


if os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton"):
    patch_once_in_a_launch()
