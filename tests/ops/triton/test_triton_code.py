"""The machine code that Triton compiles for a GPU, inspected without one.

In the loops of the backward kernels each thread reduces what it loads on its own. If Triton reduced
across threads instead, every step would wait at barriers: right, and up to 24 times slower. All
loads of a forward program are to be in flight at once: if Triton exchanged parameters between
threads, it would wait at a dozen barriers, and if a load were sunk to its first use, it would wait
for those before it.
"""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version

import pytest

pytest.importorskip("triton")

pytestmark = pytest.mark.slow  # kernels are compiled for several GPUs

TRITON = [int(part) for part in version("triton").split(".")[:2]]

# In a process of its own: here, Triton is the interpreter.
COMPILE = """
import json
import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from torch_srelu.ops.triton import triton_backend as host
from torch_srelu.ops.layout import ChannelView
from torch_srelu.ops.triton.triton_launch import OPTIONS

POINTERS = {"g_ptr", "x_ptr", "y_ptr", "gx_ptr", "second_grad_ptr", "z_or_residual_ptr"}


def code(view, dtype, which, present=(), target=("cuda", 90, 32)):
    view, dtype = ChannelView(*view), getattr(torch, dtype)
    if which == "forward":
        launch = host._forward_launch(view, dtype)
    else:
        sums = 2 if "mean_ptr" in present else int("bias_ptr" in present)
        tensors = 2 + len(POINTERS.intersection(present))
        launches = host._backward_launch(view, dtype, True, True, sums, tensors)
        launch = getattr(launches, which)
    names = launch.kernel.arg_names
    values = (*launch.sizes, *(v for k, v in launch.meta.items() if k not in OPTIONS))
    fixed = dict(zip(names[-len(values):], values))
    optional = {"bias_ptr", "bias_out", "second_grad_ptr", *host.backward_kernels.NORM} & set(names)
    fixed |= {name: None for name in optional.difference(present)}
    sizes = names[-len(values):][: len(launch.sizes)]
    sizes = {n for n in sizes if fixed[n] != 1}  # Triton specialises on 1
    kind = {torch.bfloat16: "*bf16", torch.float32: "*fp32"}[dtype]
    signature = {
        n: kind if n in POINTERS
        else "i32" if n in sizes
        else "constexpr" if n in fixed
        else "*fp32"
        for n in names
    }
    constants = {(names.index(n),): v for n, v in fixed.items() if n not in sizes}
    aligned = [n for n in names if n not in fixed or (n in sizes and fixed[n] % 16 == 0)]
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n in aligned}
    source = ASTSource(launch.kernel, signature, constants, attributes)
    options = {n: launch.meta[n] for n in OPTIONS if n in launch.meta}
    compiled = triton.compile(source, target=GPUTarget(*target), options=options)
    if target[0] == "hip":
        return compiled.asm["amdgcn"]
    # ptxas may still move loads.
    return compiled.asm["sass" if which == "forward" else "ptx"]


print(json.dumps([code(*case) for case in json.load(sys.stdin)]))
"""


def loops(ptx: str) -> list[str]:
    """The bodies of all loops: from a label to a jump back to it."""
    found = []
    for label in re.finditer(r"^(\$L\w+):", ptx, re.MULTILINE):
        back = re.compile(rf"bra(?:\.uni)?\s+{re.escape(label[1])};")
        jumps = list(back.finditer(ptx, label.end()))
        if jumps:
            found.append(ptx[label.end() : jumps[-1].end()])
    return found


def waits(sass: str) -> int:
    """The longest chain of loads that wait for one another.

    A line begins with the mask of scoreboards that it waits for, and then names the scoreboard that
    it signals: ``16:-:3:Y:2 LDG.E R2, ...`` waits for scoreboard 4 and signals 3.
    """
    longest = done = 0
    in_flight: dict[int, int] = {}  # by scoreboard: the length of the chain that ends there
    for line in re.finditer(r"^\s*(--|\d\d):.:(.):.:\S+\s+(.*)", sass, re.MULTILINE):
        awaited = 0 if line[1] == "--" else int(line[1])
        for bit in [b for b in in_flight if awaited >> b & 1]:
            done = max(done, in_flight.pop(bit))
        if "LDG" in line[3]:
            longest = max(longest, done + 1)
            in_flight[int(line[2])] = max(in_flight.get(int(line[2]), 0), done + 1)
    return longest


BIAS = ("bias_ptr",)
SECOND_GRAD = ("second_grad_ptr",)
NORM = ("mean_ptr", "scale_ptr", "shift_ptr")  # a `BatchNormInput`: the input is recomputed
RESIDUAL = (*NORM, "z_or_residual_ptr", "second_grad_ptr")  # with a residual
KEPT_INPUT = ("z_or_residual_ptr", "mean_ptr", "second_grad_ptr")  # the input is kept


CASES = [
    ((3211264, 64, 1), "bfloat16", "first", BIAS),  # columns, few channels: merged rows
    ((802816, 256, 1), "bfloat16", "first", SECOND_GRAD),
    ((802816, 256, 1), "bfloat16", "first", KEPT_INPUT),
    ((802816, 256, 1), "bfloat16", "first", RESIDUAL),
    ((802816, 64, 1), "bfloat16", "first", NORM),
    ((127 * 49, 96, 1), "bfloat16", "first", BIAS),  # incomplete rows at the end
    ((131072, 192, 1), "float32", "first", BIAS),
    ((128, 192, 256), "bfloat16", "first", BIAS),  # runs, several to a tile
    ((128, 192, 256), "bfloat16", "first", SECOND_GRAD),
    ((256, 512, 784), "bfloat16", "first", BIAS),  # rows
    ((256, 512, 784), "float32", "first", SECOND_GRAD),
    ((256, 1024, 196), "bfloat16", "first", ()),
]
FORWARD = [
    ((262144, 128, 1), "bfloat16", "forward"),
    ((262144, 128, 1), "float32", "forward"),
    ((524288, 192, 1), "bfloat16", "forward"),  # merged rows
    ((127 * 49, 96, 1), "bfloat16", "forward"),  # incomplete rows at the end
]
RUNS = [
    (view, dtype, "forward")
    for view in ((16, 128, 256), (256, 256, 3136), (256, 512, 784))
    for dtype in ("float32", "bfloat16")
]
SPANS = [((64, 64, 111 * 111), dtype, "forward") for dtype in ("float32", "bfloat16")]
ROWS = ((256, 1024, 196), "bfloat16", "forward")
SECOND = [
    ((262144, 128, 1), "bfloat16", "second"),  # thousands of partial sums of a channel
    ((128, 192, 256), "bfloat16", "second"),
]
AMD = [
    (view, "bfloat16", which, (), ("hip", "gfx942", 64))
    for view, which in (
        ((262144, 128, 1), "forward"),
        ((128, 192, 256), "forward"),
        ((64, 64, 111 * 111), "forward"),
        ((262144, 128, 1), "second"),
    )
]


@pytest.fixture(scope="module")
def compiled() -> dict[tuple, str]:
    """All kernels, compiled in one process: its start takes longer than a kernel."""
    cases = [*CASES, *FORWARD, *RUNS, *SPANS, ROWS, *SECOND, *AMD]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", COMPILE],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(cases, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_threads_reduce_without_barriers(compiled: dict[tuple, str], case: tuple) -> None:
    bodies = [body for body in loops(compiled[case]) if "ld.global" in body]
    assert bodies, "no loop with loads"
    for body in bodies:
        assert "st.global" in body
        for barrier in ("bar.sync", "st.shared", "ld.shared"):
            assert barrier not in body


@pytest.mark.parametrize("case", FORWARD)
def test_forward_columns_load_all_at_once(compiled: dict[tuple, str], case: tuple) -> None:
    """Parameters too, in the threads that use them and in vectors, with one barrier."""
    sass = compiled[case]
    assert sass.count("BAR.SYNC") == 1
    before, after = sass.split("BAR.SYNC")
    loads = re.findall(r"LDG\S*", before)
    assert len(loads) >= 8, loads  # four parameters and several tiles
    assert all(".64" in load or ".128" in load for load in loads), set(loads)
    assert "LDG" not in after
    assert "STG" not in before
    complete = case[0][0] % 2 == 0
    assert waits(sass) <= (1 if complete else 2)


@pytest.mark.parametrize("case", RUNS)
def test_forward_runs_wait_once(compiled: dict[tuple, str], case: tuple) -> None:
    """For parameters and input together; loads and stores are of 16 bytes."""
    sass = compiled[case]
    assert waits(sass) == 1
    assert len(re.findall(r"LDG\S*\.128", sass)) == len(re.findall(r"STG\S*\.128", sass)) == 2
    assert "BAR.SYNC" not in sass


@pytest.mark.parametrize("case", SPANS)
def test_forward_spans_load_vectors(compiled: dict[tuple, str], case: tuple) -> None:
    """Wherever channels begin. They wait once, and once more where there are two channels."""
    sass = compiled[case]
    assert waits(sass) <= 2
    assert len(re.findall(r"LDG\S*\.128", sass)) == len(re.findall(r"STG\S*\.128", sass)) == 2
    assert "BAR.SYNC" not in sass


def test_forward_rows_wait_once(compiled: dict[tuple, str]) -> None:
    """With Triton 3.6, whose ptxas sinks the last two of eight loads, twice."""
    sass = compiled[ROWS]
    assert waits(sass) <= (1 if TRITON >= [3, 7] else 2)
    assert len(re.findall(r"LDG\S*\.64", sass)) == len(re.findall(r"STG\S*\.64", sass)) == 8
    assert "BAR.SYNC" not in sass


@pytest.mark.parametrize("case", AMD)
def test_kernels_compile_for_amd(compiled: dict[tuple, str], case: tuple) -> None:
    assert re.search(r"(global|buffer)_store", compiled[case])
