"""`srelu compare` and `srelu train`: train runs, show their progress, print the results."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ..._text import counted
from ..analysis import comparison, comparison_tables
from ..config.run import Run
from ..engine.scheduling import Event, progress_event
from ..models.network_registry import NETWORKS
from ..records.history import Metrics
from ..records.run_record import Record
from ..runtime.distributed import world_size
from ..training.callbacks import Progress, Stopped
from ..training.loop import train as train_run
from ..util import files
from ..util.choices import check_choice
from .data_commands import DataFolder, check_data_folder
from .progress_board import Board, shown
from .report_command import PAGE, RECORDS, Baseline, write_page
from .run_arguments import SETTINGS, chosen_runs, parse_settings, rivals_in_words
from .terminal import INTERRUPTED, IS_RANK_0, console, errors, examples, plain_warnings

_REPEAT_SECONDS = 1.0  # a second Ctrl-C within this time is the same key press

RIVALS = ["relu", "prelu", "apl", "srelu"]
COMPARE_EXAMPLES = examples(
    "srelu compare",
    "srelu compare relu srelu --seeds 8 --epochs 60",
    "srelu compare relu lrelu:slope=0.1 srelu srelu:quantile=0.8 --dataset mnist --epochs 5",
    "srelu compare prelu srelu --baseline prelu --dataset cifar10 --set augmentation=flips",
)
TRAIN_EXAMPLES = examples(
    "srelu train srelu",
    "srelu train srelu:quantile=0.8 --dataset mnist --seed 3 --set lr=0.05",
    "torchrun --nproc-per-node 2 -m torch_srelu train srelu --dataset mnist",
)

Dataset = Annotated[str, typer.Option(help="Data set; `srelu data` lists them.")]
Net = Annotated[
    str | None,
    typer.Option(
        help=f"Network, one that fits the data: {', '.join(NETWORKS)}.",
        show_default="the one published for the data",
    ),
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="Length of training.", show_default="the recipe's")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help=f"Any other field of a run; repeatable. One of {', '.join(SETTINGS)}. Lists are "
        "written as in fixed=t_r,a_r.",
    ),
]
RecordsFolder = Annotated[
    Path, typer.Option("--records", metavar="FOLDER", help="Folder of records.")
]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda.", show_default="a GPU if there is one")
]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Also write metrics for TensorBoard into the records.")
]


def compare(
    activations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ACTIVATION...",
            help="Rivals, with their options after a colon, as in lrelu:slope=0.1. There are "
            f"{rivals_in_words()}.",
            show_default=" ".join(RIVALS),
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds: 1, 2, ...")] = 3,
    dataset: Dataset = "digits",
    net: Net = None,
    epochs: Epochs = None,
    baseline: Baseline = None,
    settings: Settings = None,
    records_folder: RecordsFolder = RECORDS,
    report: Annotated[
        Path | None, typer.Option(help="HTML file to write.", show_default=f"RECORDS/{PAGE}")
    ] = None,
    data: DataFolder = None,
    device: Device = None,
    tensorboard: TensorBoard = False,
) -> None:
    """Train rivals under one protocol, print the table, write the report.

    Without arguments: relu, prelu, apl and srelu, three seeds each, on handwritten digits that need
    no download. Finished runs are not trained again, and stopped ones are resumed: give the same
    command.
    """
    typed = activations or RIVALS
    if baseline is not None:
        check_choice("baseline", baseline, typed)
    if report is not None and records_folder.resolve() not in report.resolve().parents:
        files.check_writable(report)  # before hours of training; the records' folder is created
    decisions = _decisions(settings, net=net, epochs=epochs)
    runs = chosen_runs(typed, range(1, seeds + 1), dataset, decisions)
    found = _train_all(runs, records_folder, data, device, tensorboard)
    if not IS_RANK_0:
        return
    base = baseline and comparison.rival_names(runs)[typed.index(baseline)]
    (result,) = comparison.compare(found, base)
    console.print()
    console.print(comparison_tables.terminal(result))
    write_page([result], report or records_folder / PAGE)


def train(
    activation: Annotated[
        str,
        typer.Argument(
            help="With its options after a colon, as in lrelu:slope=0.1. One of "
            f"{rivals_in_words()}."
        ),
    ] = "srelu",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the run.")] = 1,
    dataset: Dataset = "digits",
    net: Net = None,
    epochs: Epochs = None,
    settings: Settings = None,
    records_folder: RecordsFolder = RECORDS,
    data: DataFolder = None,
    device: Device = None,
    tensorboard: TensorBoard = False,
) -> None:
    """Train one run and write its record.

    A finished run is not trained again; a stopped one is resumed.
    """
    decisions = _decisions(settings, net=net, epochs=epochs)
    runs = chosen_runs([activation], [seed], dataset, decisions)
    (record,) = _train_all(runs, records_folder, data, device, tensorboard)
    console.print(Text(f"Record: {record.folder}"), soft_wrap=True)


def _decisions(settings: list[str] | None, **given: Any) -> dict[str, Any]:
    """Fields of `Run` from the command line: set by name, and by options of their own."""
    own = {name: value for name, value in given.items() if value is not None}
    by_name = parse_settings(settings or [])
    for name in own.keys() & by_name:
        raise ValueError(f"{name} is given twice, with --{name} and with --set: give it once")
    return {**by_name, **own, "world": world_size()}


def _train_all(
    runs: Sequence[Run], folder: Path, data: Path | None, device: str | None, tensorboard: bool
) -> list[Record]:
    """Trains the runs that are not finished and shows their progress."""
    check_data_folder(data)
    board = Board(comparison.rival_names(runs), runs)
    found = []
    try:
        with (
            plain_warnings(),
            shown(board, console) as update,
            closing(_TensorBoardWriter()) as writer,
            _stop_on_interrupt() as stop,
        ):

            def on_step(progress: Progress) -> None:
                update(progress_event(progress))

            def on_epoch(progress: Progress) -> None:
                on_step(progress)
                if tensorboard and progress.metrics:
                    writer.add(progress.folder, progress.metrics)

            for run in runs:
                record = train_run(run, folder, data, on_epoch, on_step, device, stop=stop)
                update(Event(run, "ended", 1.0, record=record))
                if tensorboard and IS_RANK_0:
                    writer.complete(record)
                found.append(record)
    except (Stopped, KeyboardInterrupt) as how:
        here = "there" if isinstance(how, Stopped) else "its last checkpoint, if there is one"
        errors.print(
            f"Stopped with {len(found)} of {counted(len(runs), 'run')} finished. The same command "
            f"goes on from {here}."
        )
        raise typer.Exit(INTERRUPTED) from None
    return found


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool] | None]:
    """Gives a function that tells whether Ctrl-C was pressed; the second time it interrupts.

    None where it does not: several processes are ended from outside, and where Ctrl-C is ignored
    training goes on.
    """
    asked: list[float] = []  # times of Ctrl-C

    def ask(*_: Any) -> None:
        asked.append(time.monotonic())
        if asked[-1] - asked[0] > _REPEAT_SECONDS:
            raise KeyboardInterrupt
        if len(asked) == 1:
            errors.print("Stopping after this step; Ctrl-C once more stops at once.")

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or world_size() > 1:
        yield None
        return
    signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


class _TensorBoardWriter:
    """Writes each epoch's metrics to ``<record>/tensorboard``."""

    def __init__(self) -> None:
        self._writer: Any = None  # a SummaryWriter

    def complete(self, record: Record) -> None:
        """Writes all epochs of a finished record that has no events; an archive cannot have any."""
        try:
            if not (record.folder / "tensorboard").exists():
                for metrics in record.metrics:
                    self.add(record.folder, metrics)
        except OSError as error:
            errors.print(f"No events for TensorBoard beside {record.folder}: {error.strerror}.")
        self.close()

    def add(self, folder: Path, metrics: Metrics) -> None:
        """Writes an epoch; what a stopped run wrote beyond its checkpoint is replaced."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # slow to import

            self._writer = SummaryWriter(
                str(folder / "tensorboard"), purge_step=metrics.epoch, flush_secs=5
            )
        for name, value in metrics._asdict().items():
            if isinstance(value, float):
                self._writer.add_scalar(name, value, metrics.epoch)

    def close(self) -> None:
        """Closes the file of the current run."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
