"""Imported before Triton's interpreter runs, lets it take about half the time.

For every call of one ``@triton.jit`` function by another it puts its own functions into
``triton.language`` again, which takes longer than to compute with them. Here once in a launch.
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
            return None  # asked for by a call inside of a launch, which ignores it
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
