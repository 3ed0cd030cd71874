"""Launches of Triton kernels that cost little host time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

OPTIONS = ("num_warps", "maxnreg")  # of the compiler; all else of a kernel's meta goes to it


class Launch:
    """A kernel with everything fixed but its tensors. Remembers the code compiled for them.

    Triton's own look-up costs more host time than a small tensor does on the GPU. What it looks at
    is the same whenever sizes, dtypes, device and the alignment of pointers are.
    """

    def __init__(self, kernel, grid: tuple[int, int, int], sizes: tuple[int, ...], meta: dict):
        self.kernel, self.grid, self.sizes, self.meta = kernel, grid, sizes, meta
        self.fixed = (*sizes, *(v for k, v in meta.items() if k not in OPTIONS))
        self.compiled: dict[tuple, tuple] = {}

    def __call__(
        self, key: tuple, *tensors: Tensor | None, out: Sequence[Tensor | None] = ()
    ) -> None:
        """``key``: device and dtypes of the tensors. ``out``: more of them, aligned or not."""
        pointers, bits = [t if t is None else t.data_ptr() for t in tensors], 0
        for pointer in pointers:
            if pointer:
                bits |= pointer
        compiled = self.compiled.get(key) if bits & 15 == 0 else None
        if compiled is not None:
            # What compiled[grid] does, less the looking up. Numbers, not tensors: of a tensor,
            # Triton would ask the driver where it lives.
            run, function, metadata = compiled
            stream = torch._C._cuda_getCurrentRawStream(key[0])
            hooks = (None, None, None)
            pointers += [t if t is None else t.data_ptr() for t in out]
            run(*self.grid, stream, function, metadata, *hooks, *pointers, *self.fixed)
            return
        made = self.kernel[self.grid](*tensors, *out, *self.sizes, **self.meta)
        if bits & 15 == 0 and torch.version.hip is None and made is not None:  # None: interpreted
            self.compiled[key] = (made.run, made.function, made.packed_metadata)


def elsewhere(x: Tensor) -> bool:
    """Triton launches on the current device, which need not be the tensor's."""
    return x.is_cuda and x.get_device() != torch._C._cuda_getDevice()
