"""Fallbacks for private names of torch: without any one of them, the package imports and is right.

All private names are in `torch_srelu._torch_compat`. One process imports torch and is forked for
every name; in the fork that module does not see the name, and a check runs. To add a name, add it
to `NAMES` with the checks that reach it.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import json
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "torch_srelu"

# ---- checks, each in a process of its own ----


def gradients_are_right() -> None:
    """Values, gradients and second derivatives are those of the reference; also without grad."""
    import torch

    import torch_srelu
    from torch_srelu.ops import reference

    x, params = _inputs()
    leaves = [x, *params]

    def results(function: Callable) -> list:
        y = function(x, *params, 1)
        first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
        return [y, *first, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves)]

    expected = results(reference.srelu)
    for _ in range(2):  # the second call may be cached
        torch.testing.assert_close(results(torch_srelu.srelu), expected)
        with torch.no_grad():
            torch.testing.assert_close(torch_srelu.srelu(x, *params, 1), expected[0])
    zeros = torch._efficientzerotensor(x.shape, dtype=x.dtype)
    torch.testing.assert_close(
        torch_srelu.srelu(zeros, *params), torch_srelu.srelu(torch.zeros_like(x), *params)
    )
    assert not any(g.any() for g in torch.autograd.grad(torch_srelu.srelu(*leaves), leaves, zeros))


def transforms_are_right() -> None:
    """torch.func, forward-mode AD, vmap, batched gradients and dispatch modes."""
    import torch
    from torch.autograd import forward_ad
    from torch.utils._python_dispatch import TorchDispatchMode

    import torch_srelu
    from torch_srelu.ops import reference

    x, params = (t.detach() if torch.is_tensor(t) else [p.detach() for p in t] for t in _inputs())
    ours = lambda x: torch_srelu.srelu(x, *params, 1)  # noqa: E731
    plain = lambda x: reference.srelu(x, *params, 1)  # noqa: E731
    for transform in (
        lambda function: torch.func.jvp(function, (x,), (x,)),
        lambda function: torch.func.vmap(function)(x[:, None]),
        lambda function: torch.func.grad(lambda x: function(x).square().sum())(x),
        lambda function: torch.autograd.functional.jacobian(function, x, vectorize=True),
    ):
        torch.testing.assert_close(transform(ours), transform(plain))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        got, expected = (forward_ad.unpack_dual(f(dual)) for f in (ours, plain))
        torch.testing.assert_close((got.primal, got.tangent), (expected.primal, expected.tangent))
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        y = ours(x)
    assert any("srelu" in name or "where" in name for name in seen)  # not kernels alone
    torch.testing.assert_close(y, plain(x))


def exports_plain_operators() -> None:
    import torch

    import torch_srelu

    unit, (x, _) = torch_srelu.SReLU(3, a_r=0.5).double(), _inputs()
    program = torch.export.export(unit, (x.detach(),))
    assert not any("srelu" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(x), unit(x))


def compiles() -> None:
    import torch

    import torch_srelu
    from torch_srelu.ops import reference

    (x, params), results = _inputs(), []
    for function in (
        torch.compile(torch_srelu.srelu, backend="aot_eager", fullgraph=True),
        reference.srelu,
    ):
        y = function(x, *params, 1)
        results.append([y, *torch.autograd.grad(y.square().sum(), [x, *params])])
    torch.testing.assert_close(*results)


def recomputes() -> None:
    """Under recompute_outputs, gradients are those without it."""
    import torch

    import torch_srelu

    net = torch.nn.Sequential(torch_srelu.SReLU(3, a_r=0.5), torch.nn.Linear(3, 4)).double()
    (x, _), results = _inputs(), []
    for context in (contextlib.nullcontext(), torch_srelu.recompute_outputs()):
        with context:
            loss = net(x).square().sum()
        results.append(torch.autograd.grad(loss, [x, *net.parameters()]))
    torch.testing.assert_close(*results)


def warns_without_patterns() -> None:
    """torch.compile is right, and a warning says what is missing."""
    import torch._inductor.fx_passes.post_grad  # noqa: F401  # what Inductor would have loaded

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiles()
    assert any("torch.compile cannot fuse" in str(w.message) for w in caught), caught


def finds_device_and_stream() -> None:
    import torch

    from torch_srelu import _torch_compat

    if torch.cuda.is_available():
        assert _torch_compat.current_device() == torch.cuda.current_device()
        assert _torch_compat.current_stream(0) == torch.cuda.current_stream(0).cuda_stream
    else:
        assert callable(_torch_compat.current_device)


def _inputs() -> tuple:
    import torch

    torch.manual_seed(0)
    x, *params = torch.randn(8, 3), *torch.randn(4, 3)
    return tuple(
        [t.double().requires_grad_() for t in ts] if isinstance(ts, list) else ts
        for ts in (x.double().requires_grad_(), params)
    )


# ---- the names, and the checks that run without them ----

EAGER = (gradients_are_right, transforms_are_right, recomputes)
NAMES: dict[str, tuple[Callable[[], None], ...]] = {
    "torch._C._are_functorch_transforms_active": (*EAGER, compiles),
    "torch.autograd.forward_ad._current_level": (*EAGER, compiles),
    "torch.compiler._is_exporting_flag": (*EAGER, compiles, exports_plain_operators),
    "torch._C._len_torch_dispatch_stack": EAGER,
    "torch._ops._len_torch_dispatch_stack_pre_dispatch": EAGER,
    "torch._C._has_storage": EAGER,
    "torch.Tensor._is_zerotensor": EAGER,
    "torch._C._dynamo.guards.TensorGuards": EAGER,
    "torch._C._FunctionBase": EAGER,
    "torch._C._autograd._push_saved_tensors_default_hooks": EAGER,
    "torch._C._autograd._pop_saved_tensors_default_hooks": EAGER,
    "torch._C._autograd._top_saved_tensors_default_hooks": EAGER,
    "torch._C._cuda_getDevice": (gradients_are_right, finds_device_and_stream),
    "torch._C._cuda_getCurrentRawStream": (gradients_are_right, finds_device_and_stream),
    "torch._inductor.fx_passes.joint_graph": (warns_without_patterns,),
    "torch._inductor.fx_passes.joint_graph.pass_patterns": (warns_without_patterns,),
    "torch._inductor.pattern_matcher.CallFunctionVarArgs": (warns_without_patterns,),
    "torch._inductor.pattern_matcher.register_graph_pattern": (warns_without_patterns,),
}


# Checked by test_torch_compat_modules.py.
IN_OTHER_TESTS = {
    *("_parameters", "_infer_parameters", "_orig_mod", "_orig_mod.", "_dynamo", "_ConvNd"),
    *("_NormBase", "_pytree", "_iterator", "_shutdown_workers", "_current_graph_task_id"),
    *("_subclasses", "_forward_hooks", "_forward_pre_hooks"),
}


# ---- hiding a name from `_torch_compat` alone ----


class Hidden:
    """Makes `_torch_compat` import modules without one name; torch itself keeps it."""

    def __init__(self, name: str) -> None:
        self.name, self.asked = name, False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The import system's hook: `_torch_compat` gets an ``__import__`` of its own."""
        if fullname != "torch_srelu._torch_compat":
            return None
        spec, hidden = PathFinder.find_spec(fullname, path), self

        class Loader(SourceFileLoader):
            def exec_module(self, module: ModuleType) -> None:
                module.__dict__["__builtins__"] = {**vars(builtins), "__import__": hidden.load}
                super().exec_module(module)

        assert spec is not None
        spec.loader = Loader(spec.loader.name, spec.loader.path)  # type: ignore[union-attr]
        return spec

    def load(self, name: str, globals_=None, locals_=None, fromlist=(), level: int = 0) -> Any:
        """Imports like ``__import__``."""
        found = builtins.__import__(name, globals_, locals_, fromlist, level)
        if level:
            return found
        owner, _, last = self.name.rpartition(".")
        if owner == name and last in fromlist:
            self.asked = True
            raise ImportError(f"cannot import {self.name}")
        return self.without(found, name if fromlist else name.partition(".")[0])

    def without(self, found: Any, path: str) -> Any:
        """A copy of what is at ``path`` without the name, or it itself if that is elsewhere."""
        if not self.name.startswith(f"{path}."):
            return found
        self.asked = True
        first, _, rest = self.name[len(path) + 1 :].partition(".")
        contents = {key: getattr(found, key) for key in dir(found)}
        if rest:
            contents[first] = self.without(contents[first], f"{path}.{first}")
        else:
            del contents[first]
        if not isinstance(found, ModuleType):
            return SimpleNamespace(**contents)
        copy = ModuleType(path)
        copy.__dict__.update(contents)
        return copy


def _check_all() -> None:
    """Prints, as JSON, what each name's checks have raised. Runs in a process of its own."""
    import torch
    import torch._inductor.fx_passes.joint_graph
    import torch._inductor.fx_passes.post_grad  # imported once for all forks

    assert "torch_srelu" not in sys.modules
    torch.set_num_threads(1)
    results = {}
    for name, checks in NAMES.items():
        if not _exists(name):
            continue
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            os.write(write, _error_without(name, checks).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            results[name] = file.read()
        os.waitpid(child, 0)
    print(json.dumps(results))


def _exists(name: str) -> bool:
    found: Any = sys.modules["torch"]
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found is not None


def _error_without(name: str, checks: tuple[Callable[[], None], ...]) -> str:
    hidden = Hidden(name)
    sys.meta_path.insert(0, hidden)  # type: ignore[arg-type]
    try:
        importlib.import_module("torch_srelu")
        for check in checks:
            check()
        assert hidden.asked, "_torch_compat does not use this name"
    except BaseException:
        return traceback.format_exc()
    return ""


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},  # CUDA does not survive a fork
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("name", NAMES)
def test_without_a_private_name_imports_work_and_results_are_right(
    name: str, errors: dict[str, str]
) -> None:
    if name not in errors:
        pytest.skip("this torch has no such name")
    assert not errors[name], errors[name]


# ---- no other module uses private names ----

# Attributes that torch's or Python's documentation describes.
DOCUMENTED = {"_version", "_base", "_replace", "_fields", "_asdict", "_make", "_getframe"}
# Private names of integrated libraries; without them a warning says what to do.
LIBRARIES = {"_ACT_LAYER_DEFAULT"}  # timm's, which has no public way


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _own_names() -> Iterator[str]:
    """All that the source defines; another attribute with an underscore is a private one."""
    for path in SOURCE.rglob("*.py"):
        yield path.stem
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.attr


def _is_foreign(node: ast.ImportFrom) -> bool:
    return not node.level and not (node.module or "").startswith("torch_srelu")


def _foreign_private_names(path: Path, own: set[str]) -> Iterator[str]:
    internal = ("functorch", "triton.runtime", "triton.compiler", "triton.backends")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            if _is_private(node.attr) and node.attr not in own | DOCUMENTED:
                yield node.attr
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if _is_private(a.name))
        elif isinstance(node, ast.ImportFrom) and _is_foreign(node):
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                if _is_private(name) or name.startswith(internal):
                    yield name


def test_no_other_module_uses_private_names_of_torch() -> None:
    own, unexpected = set(_own_names()), {}
    for path in sorted(SOURCE.rglob("*.py")):
        names = set(_foreign_private_names(path, own)) - LIBRARIES
        if names and path.name != "_torch_compat.py":
            unexpected[str(path.relative_to(SOURCE))] = names
    assert not unexpected


def test_every_private_name_is_checked() -> None:
    """Attributes, imports and strings of `_torch_compat`, by their private parts."""
    path = SOURCE / "_torch_compat.py"
    strings = {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value
    }
    used = {*_foreign_private_names(path, set()), *strings}
    parts = {part for name in used for part in name.split(".") if _is_private(part)}
    checked = {part for name in NAMES for part in name.split(".")} | IN_OTHER_TESTS
    own = {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)}
    assert parts <= checked | own | DOCUMENTED


if __name__ == "__main__":
    _check_all()
