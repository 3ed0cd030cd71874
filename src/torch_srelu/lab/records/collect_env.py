"""The environment of a run: versions, hardware, state of the source code."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import torch_srelu

PACKAGES = ("numpy", "scikit-learn", "safetensors", "triton")


def environment(device: torch.device) -> dict[str, Any]:
    """A plain description of this process on ``device``.

    Example:
        >>> sorted(environment(torch.device("cpu")))
        ['device', 'git', 'hardware', 'source', 'started', 'threads', 'versions']
    """
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_srelu": torch_srelu.__version__,
    }
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
        versions["cudnn"] = str(torch.backends.cudnn.version())
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "device": device.type,
        "hardware": _hardware(device),
        "threads": torch.get_num_threads(),
        "versions": versions,
        "git": git_state(Path(__file__).parent),
        "source": source_state(),
    }


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = f"model name: {platform.processor() or platform.machine()}"
    model = re.search(r"^model name\s*: *(.*?)\s*$", text, re.MULTILINE)
    return f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores"


def git_state(folder: Path) -> str | None:
    """The commit that ``folder`` is at, "+" appended if it was changed; None outside a checkout."""
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty=+"]
    command += ["--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def source_state() -> str:
    """A short digest of this package's Python files, which needs no checkout."""
    digest = hashlib.sha256()
    root = Path(torch_srelu.__file__).parent
    for name in sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py")):
        digest.update(f"{name}\0".encode() + (root / name).read_bytes() + b"\0")
    return digest.hexdigest()[:12]
