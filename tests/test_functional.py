"""Arguments of srelu: checks, ranks, nested tensors, subclasses, torch.fx."""

import contextlib

import pytest
import torch
from torch import fx

import torch_srelu
from torch_srelu import SReLU


def p(n: int = 3, **options) -> torch.Tensor:
    return torch.ones(n, **options)


X = torch.randn(2, 3, 4)
LONG = torch.ones(2, 3, dtype=torch.int64)
BAD = {
    "integer x": ((LONG, p(), p(), p(), p(), 1), TypeError, "x must be float64.*int64"),
    "boolean x": ((LONG.bool(), p(), p(), p(), p(), 1), TypeError, "x must be.*bool"),
    "complex x": ((X + 0j, p(), p(), p(), p(), 1), TypeError, "x must be.*complex64"),
    "no tensor": (([1.0], p(), p(), p(), p(), 1), TypeError, "x must be a tensor, got list"),
    "a number": ((X, p(), 1.0, p(), p(), 1), TypeError, "a_r must be a 1-D tensor, got float"),
    "integers": ((X, p(), p(), p().int(), p(), 1), TypeError, "t_l must be a floating"),
    "2-D": ((X, p(), p(), p(), p()[:, None], 1), ValueError, r"a_l must be 1-D.*\(3, 1\)"),
    "0-D": ((X, p()[0], p(), p(), p(), 1), ValueError, r"t_r must be 1-D"),
    "length": ((X, p(), p(), p(), p(2), 1), ValueError, "a_l has 2 values but t_r has 3"),
    "device": ((X, p(), p(device="meta"), p(), p(), 1), ValueError, "a_r is on meta but x is on"),
    "channels": ((X, p(7), p(7), p(7), p(7), 1), ValueError, r"3 channels in dim=1 .*for 7"),
    "dim too large": ((X, p(), p(), p(), p(), 3), ValueError, r"dim=3 does not.*-3 <= dim < 3"),
    "dim too small": ((X, p(), p(), p(), p(), -4), ValueError, "dim=-4 does not exist"),
    "no dim": ((torch.tensor(1.0), p(), p(), p(), p(), 0), ValueError, "x is a scalar.*SReLU.1."),
    "no int": ((X, p(), p(), p(), p(), 1.0), TypeError, "dim must be an int, got float"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("backend", [None, "reference"])
def test_bad_input(name: str, backend: str | None) -> None:
    arguments, error, message = BAD[name]
    chosen = torch_srelu.use_backend(backend) if backend else contextlib.nullcontext()
    with chosen, pytest.raises(error, match=message):
        torch_srelu.srelu(*arguments)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_are_refused_with_what_to_do(layout, backend: str | None) -> None:
    act = SReLU(3, dim=-1)
    parts = [torch.randn(4, 3), torch.randn(2, 3)]
    x = torch.nested.nested_tensor(parts, layout=layout)
    chosen = torch_srelu.use_backend(backend) if backend else contextlib.nullcontext()
    with chosen, pytest.raises(TypeError, match=r"nested.*x\.values\(\).*x\.unbind\(\)"):
        act(x)
    if layout is torch.jagged:  # as it says
        y = torch.nested.nested_tensor_from_jagged(act(x.values()), x.offsets()).unbind()
    else:
        y = [act(part) for part in x.unbind()]
    for part, expected in zip(y, map(act, parts), strict=True):
        assert torch.equal(part, expected)


def test_bad_input_under_compile() -> None:
    compiled = torch.compile(torch_srelu.srelu, backend="eager")
    with pytest.raises(ValueError, match=r"3 channels in dim=1 .*for 7"):
        compiled(X, p(7), p(7), p(7), p(7))


def test_shared_parameters_take_any_rank() -> None:
    shared = [torch.tensor([v]) for v in (1.0, 0.5, -1.0, 0.1)]
    for shape in ((), (5,), (2, 3), (2, 3, 4, 5, 6, 7)):
        x = 3 * torch.randn(shape)
        y = torch_srelu.srelu(x, *shared)
        assert y.shape == x.shape
        flat = torch_srelu.srelu(x.reshape(-1, 1), *shared)
        assert torch.equal(y.reshape(-1, 1), flat)


def test_fx_keeps_it_as_one_call() -> None:
    traced = fx.symbolic_trace(SReLU(3))
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"] == [torch_srelu.srelu]
    assert torch.equal(traced(X), SReLU(3)(X))


def test_tensor_subclasses_are_asked_first() -> None:
    class Logged(torch.Tensor):
        calls: list = []  # noqa: RUF012

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    y = torch_srelu.srelu(X.as_subclass(Logged), p(), p(), p(), p())
    assert torch_srelu.srelu in Logged.calls
    assert isinstance(y, Logged)


def test_scalar_parameters_and_tensor_dims_are_refused() -> None:
    scalars = [torch.tensor(v) for v in (0.5, 0.7, -0.5, 0.1)]
    with pytest.raises(ValueError, match="t_r must be 1-D"):
        torch_srelu.srelu(torch.randn(5), *scalars)
    ones = [torch.ones(3) for _ in range(4)]
    with pytest.raises(TypeError, match="dim must be an int"):
        torch_srelu.srelu(torch.randn(2, 3), *ones, dim=torch.tensor(1))  # type: ignore[arg-type]
