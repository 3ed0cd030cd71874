"""The (outer, C, inner) view: addresses of elements, copies."""

import torch
from hypothesis import given

from checks import Problem, lay_out, problems
from torch_srelu.ops import layout


@given(problem=problems(dtypes=(torch.float32,)))
def test_view_finds_every_element(problem: Problem) -> None:
    x, channels = problem.x, problem.params[0].shape[0]
    dense = layout.densify(x)
    assert torch.equal(dense.nan_to_num(), x.nan_to_num())
    assert dense.stride() == torch.empty_like(x).stride()
    view = layout.view(dense, channels, problem.dim)
    assert view is not None
    assert view.outer * view.channels * view.inner == x.numel()
    # number the channels through the view, in memory order, and read them back through the tensor
    memory = torch.arange(view.channels).repeat_interleave(view.inner).repeat(view.outer)
    seen = memory.as_strided(dense.shape, dense.stride())
    if channels == 1:
        assert (seen == 0).all()
    else:
        expected = torch.arange(channels).reshape(
            [-1 if d == problem.dim % x.dim() else 1 for d in range(x.dim())]
        )
        assert torch.equal(seen, expected.expand(x.shape))


def test_dense_layouts_are_not_copied() -> None:
    x = torch.randn(2, 3, 4, 5)
    for kind in ("contiguous", "channels_last", "permuted"):
        laid = lay_out(x, kind)
        assert layout.densify(laid) is laid
    for kind in ("sliced", "expanded"):
        assert layout.view(lay_out(x, kind), 3, 1) is None


def test_channels_last_has_no_inner() -> None:
    x = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert layout.view(x, 3, 1) == (40, 3, 1)
    assert layout.view(x.contiguous(), 3, 1) == (2, 3, 20)
    assert layout.view(x, 1, 1) == (1, 1, 120)
