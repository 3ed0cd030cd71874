"""Where networks of these tests draw from."""

from __future__ import annotations

import torch

from torch_srelu.lab.runtime.seeds import DropoutStream


def stream() -> DropoutStream:
    """A stream at its first step."""
    made = DropoutStream(1, torch.device("cpu"))
    made.seek(0)
    return made
