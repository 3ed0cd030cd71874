"""Calls that native/eager.cpp leaves to Python, though it knows their kind."""

import warnings

import pytest
import torch

from torch_srelu import srelu, use_backend
from torch_srelu.ops import cpp
from torch_srelu.ops.triton import triton_launch

if cpp.compiled is None or triton_launch._launch is None:
    pytest.skip(f"eager calls need Python: {cpp.why_not()}", allow_module_level=True)

from learnt import Kind, close

pytestmark = pytest.mark.usefixtures("one_thread")


class Subclass(torch.Tensor):
    pass


class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def dual(kind):
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(kind.x, torch.ones_like(kind.x))
        return torch.autograd.forward_ad.unpack_dual(kind(x)).primal


def in_mode(kind):
    with Mode():
        return kind()


def forced(kind):
    with use_backend("reference"):
        return kind()


def traced(kind):
    kind.params = [p.detach() for p in kind.params]
    with warnings.catch_warnings():  # of sizes that the trace makes constants
        warnings.simplefilter("ignore")
        return torch.jit.trace(lambda x: kind(x), kind.x, check_trace=False)(kind.x)


LEFT_TO_PYTHON = {
    "a subclass": lambda kind: kind(kind.x.as_subclass(Subclass)).as_subclass(torch.Tensor),
    "vmap": lambda kind: torch.func.vmap(lambda x: kind(x), in_dims=0)(kind.x[None])[0],
    "grad": lambda kind: torch.func.vjp(lambda x: kind(x), kind.x)[0],
    "forward mode": dual,
    "a dispatch mode": in_mode,
    "another backend": forced,
    "frozen": lambda kind: kind(frozen=True),
    "compiled": lambda kind: torch.compile(lambda x: kind(x), fullgraph=True, backend="eager")(
        kind.x
    ),
    "a trace": traced,
}


@pytest.mark.parametrize("how", LEFT_TO_PYTHON)
def test_what_is_left_to_python(how) -> None:
    kind = Kind()
    y = LEFT_TO_PYTHON[how](kind)
    assert not kind.driver.launched
    close(y.detach().clone(), kind.expected(torch.ones_like(kind.x))[0].detach())


def test_other_kinds_are_left_to_python() -> None:
    kind = Kind()
    for x in (kind.x[:, :, :2], kind.x.mT, kind.x.double(), kind.x.half(), kind.x[:1]):
        kind(x)
    srelu(kind.x, *[p.half() for p in kind.params])
    srelu(kind.x, *kind.params, bias=torch.zeros(5))
    assert not kind.driver.launched


def test_bad_arguments_raise_what_they_always_raise() -> None:
    kind = Kind()
    with pytest.raises(TypeError, match="dim must be"):
        srelu(kind.x, *kind.params, 1.0)
    with pytest.raises(TypeError, match="x must be a tensor"):
        srelu([1.0], *kind.params)
    with pytest.raises(ValueError, match="dim"):
        srelu(kind.x, *kind.params, 2**70)
    assert cpp.compiled.srelu(kind.x) is None
