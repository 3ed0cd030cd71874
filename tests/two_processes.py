"""Runs a test in two processes of a gloo process group."""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed as dist
from torch import multiprocessing as mp


def run_in_two_processes(test: Callable[..., None], folder: Path) -> None:
    """Calls ``test(rank, group)`` in two processes; fails with what they report, if they fail."""
    # Forked from a process that has imported torch and computed nothing: children of this one would
    # inherit locked thread pools, and new ones would import torch again, each of them.
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["torch", "pytest", "hypothesis"])
    environment = dict(os.environ)  # of now: that other process has an older one
    processes = [
        context.Process(target=_run, args=(test, rank, folder, environment)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    alive = [process for process in processes if process.is_alive()]
    for process in alive:
        process.kill()
    reports = [path.read_text() for path in sorted(folder.glob("failed-*"))]
    assert not reports, "\n".join(reports)
    assert not alive, f"{len(alive)} of 2 processes were still waiting after 120 seconds"
    assert [process.exitcode for process in processes] == [0, 0]


def _run(test: Callable[..., None], rank: int, folder: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        test(rank, dist.group.WORLD)
        dist.barrier()
    except BaseException:
        (folder / f"failed-{rank}").write_text(f"process {rank}:\n{traceback.format_exc()}")
        os._exit(1)  # without waiting for the other
    dist.destroy_process_group()
    # Python's own shutdown would destroy objects that torch's threads may still use, which now and
    # then aborts the process.
    sys.stderr.flush()
    os._exit(0)
