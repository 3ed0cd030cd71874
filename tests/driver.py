"""A stand-in for the CUDA driver: launches are computed on the CPU, in the memory that they name.

What comes before a launch (native/launch.c, native/eager.cpp) is the real thing.
"""

import ctypes

import torch

from torch_srelu.ops import layout, reference
from torch_srelu.ops.triton.triton_launch import _launch

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


class _Attribute(ctypes.Structure):  # CUlaunchAttribute
    # An id, padding, and a union of 64 bytes, here of a number.
    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):  # CUlaunchConfig
    _fields_ = (
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


_SIGNATURE_EX = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(_Config),
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
        self._callback_ex = _SIGNATURE_EX(self._launch_ex)

    def launches(self) -> tuple:
        """What `ops.triton.Call.launches` gives."""
        second, sums = (
            (None, (0, 0)) if self.alone else (self.plan(FINISH), (self.rows, self.view[1]))
        )
        return self.plan(FORWARD), self.plan(BACKWARD), second, sums

    def plan(self, function: int, chained: bool = False):
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        address_ex = ctypes.cast(self._callback_ex, ctypes.c_void_p).value
        names, has = TENSORS[function], self._has[function]
        places = tuple(names.index(n) for n in has)
        aligned = sum(not n.endswith("_out") for n in names)
        about = ((1, 1, 1), 32, 0, aligned, places, (0,) * len(places))
        return _launch.plan(address, function, *about, address_ex if chained else 0)

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

    def _launch_ex(self, config, function, params, extra) -> int:
        given = config[0]
        self._launch(function, *[0] * 8, params, extra)
        asked = [(a.id, a.value[0]) for a in given.attributes[: given.count]]
        sizes = tuple(getattr(given, name) for name, _ in _Config._fields_[:7])
        self.launched[-1] = (function, sizes, given.stream, asked)
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
