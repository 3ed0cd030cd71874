"""A stand-in for the CUDA driver: launches are computed on the CPU, in the memory that they name.

What comes before a launch (native/launch.c, native/eager.cpp) is the real thing.
"""

import ctypes

import torch

from torch_srelu.ops import layout, reference
from torch_srelu.ops.triton_launch import _launch

_PARAMS = ("t_r", "a_r", "t_l", "a_l")
_OUT = (*(f"{p}_out" for p in _PARAMS), "bias_out")
# Stand for the driver's handles of kernels, and what these have for tensors, in order.
FORWARD, BACKWARD, FINISH = 1, 2, 3
TENSORS = {
    FORWARD: ("x", "y", *_PARAMS, "bias"),
    BACKWARD: ("g", "x", "gx", "sums", *_PARAMS, "bias", "more", *_OUT),
    FINISH: ("sums", "a_r", "a_l", *_OUT),
}
_SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    *[ctypes.c_uint] * 7,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64)),
    ctypes.c_void_p,
)


class Driver:
    """Computes SReLU of float32 tensors like ``x``; ``alone``: backward in one launch, not two."""

    def __init__(self, x, channels: int, dim: int = 1, biased: bool = False, alone: bool = True):
        view = layout.view(x, channels, dim)
        assert view is not None
        self.view = view
        self.rows, self.alone, self.launched = 4 + biased, alone, []
        absent = {"more"} if biased else {"more", "bias", "bias_out"}
        self._has = {
            f: [n for n in names if n not in absent | self._unused(f)]
            for f, names in TENSORS.items()
        }
        self.on_launch = self._launch  # what a test may put something before
        self._callback = _SIGNATURE(lambda *args: self.on_launch(*args))

    def launches(self) -> tuple:
        """What `ops.triton.Call.launches` gives."""
        second, sums = (
            (None, (0, 0)) if self.alone else (self.plan(FINISH), (self.rows, self.view[1]))
        )
        return self.plan(FORWARD), self.plan(BACKWARD), second, sums

    def plan(self, function: int):
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        names, has = TENSORS[function], self._has[function]
        places = tuple(names.index(n) for n in has)
        aligned = sum(not n.endswith("_out") for n in names)
        return _launch.plan(
            address, function, (1, 1, 1), 32, 0, aligned, places, (0,) * len(places)
        )

    def _unused(self, function: int) -> set[str]:
        if function != BACKWARD:
            return set()
        return {"sums"} if self.alone else set(_OUT)

    def _launch(self, function, *rest) -> int:
        params = rest[8]
        given = {
            name: _memory(params[n][0], self._shape(name))
            for n, name in enumerate(self._has[function])
        }
        with torch.no_grad():
            if function == FORWARD:
                self._forward(given)
            elif function == BACKWARD:
                self._backward(given)
            else:
                self._give(given, given["sums"])
        self.launched.append(function)
        return 0

    def _shape(self, name: str) -> tuple[int, ...]:
        if name == "sums":
            return self.rows, self.view.channels
        return self.view if name in {"x", "y", "g", "gx"} else (self.view.channels,)

    def _forward(self, given: dict) -> None:
        x, params = _input(given)
        given["y"].copy_(reference.srelu(x, *params, 1))

    def _backward(self, given: dict) -> None:
        x, params = _input(given)
        gx, *sums = reference.srelu_backward(given["g"], x, *params, 1)
        given["gx"].copy_(gx)
        sums = torch.stack([*sums, gx.sum((0, 2))][: self.rows])
        if self.alone:
            self._give(given, sums)
        else:
            given["sums"].copy_(sums)

    def _give(self, given: dict, sums) -> None:
        for name, row in zip(_OUT, sums, strict=False):
            given[name].copy_(row)


def _memory(pointer: int, shape: tuple[int, ...]) -> torch.Tensor:
    values = (ctypes.c_float * torch.Size(shape).numel()).from_address(pointer)
    return torch.frombuffer(values, dtype=torch.float32).view(shape)


def _input(given: dict):
    bias = given.get("bias")
    x = given["x"] if bias is None else given["x"] + bias[:, None]
    return x, [given[p] for p in _PARAMS]
