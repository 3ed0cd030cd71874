"""`srelu bench`: the time of SReLU and its rivals on one tensor."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from ..._text import counted
from ..analysis import op_timing as benchmark
from ..analysis.op_timing import FLOOR, PROVIDERS, Case, Timing
from ..records.collect_env import environment
from ..runtime.distributed import choose_device
from ..util.choices import check_choice
from .terminal import console, examples

EXAMPLES = examples(
    "srelu bench",
    "srelu bench --dtype bfloat16 --layout channels_last",
    'srelu bench prelu "srelu fused" --shape 4096x1024',
)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def bench(
    providers: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROVIDER...", help=f"Of {', '.join(PROVIDERS)}; relu is added."),
    ] = None,
    shape: Annotated[str, typer.Option(help="Sizes, batch and channels first.")] = "64x192x32x32",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    layout: Annotated[
        Literal["contiguous", "channels_last"], typer.Option(help="Memory layout.")
    ] = "contiguous",
    rounds: Annotated[int, typer.Option(min=2, help="How often everything is timed.")] = 10,
) -> None:
    """Time SReLU and its rivals on a GPU if there is one, else on the CPU.

    Medians over rounds in which every provider takes its turn; read the ratios to relu. The byte
    floor is the time of negating the same tensor, in proportion to the bytes that must move.
    """
    names = list(dict.fromkeys(["relu", *(providers or PROVIDERS)]))
    for name in names:
        check_choice("provider", name, PROVIDERS)
    check_choice("dtype", dtype, DTYPES)
    case = Case(_sizes(shape, layout), DTYPES[dtype], layout)
    device = choose_device()
    with console.status("timing"):
        rows = list(benchmark.measure(case, names, rounds, device.type))
    console.print(_table(rows, f"{shape} {dtype} {layout}, median of {rounds} rounds"))
    where = environment(device)
    threads, torch_version = counted(where["threads"], "thread"), where["versions"]["torch"]
    console.print(Text(f"{where['hardware']}, {threads}; torch {torch_version}"))


def _sizes(shape: str, layout: str) -> tuple[int, ...]:
    sizes = shape.split("x")
    if len(sizes) < 2 or not all(size.isdigit() and int(size) for size in sizes):
        raise ValueError(f"shape must be at least two sizes like 64x192x32x32, got {shape!r}")
    if layout == "channels_last" and len(sizes) != 4:
        raise ValueError(f"channels_last is a layout of four sizes (N, C, H, W), got {shape!r}")
    return tuple(map(int, sizes))


def _table(rows: list[Timing], title: str) -> Table:
    columns = list(dict.fromkeys((row.clock, row.which) for row in rows))
    times = {(row.provider, row.clock, row.which): row.median for row in rows}
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column("provider")
    for clock, which in columns:
        table.add_column(f"{which}, {clock}", justify="right")
        table.add_column("to relu", justify="right")
    for provider in sorted({row.provider: None for row in rows}, key=FLOOR.__eq__):  # it is last
        cells = []
        for column in columns:
            seconds = times[(provider, *column)]
            cells += [f"{1e6 * seconds:,.0f} us", f"{seconds / times[('relu', *column)]:.2f}x"]
        table.add_row(provider, *cells, style="dim" if provider == FLOOR else None)
    return table
