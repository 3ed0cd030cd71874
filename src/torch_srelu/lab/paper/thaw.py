"""When SReLU was adapted to its inputs, and which t_r that gave, beside Table 3.

t_r is set to a percentile of a layer's inputs when the freeze ends, and inputs grow with training:
so the paper's t_r tell something about the length of its freeze, which it does not state.
"""

from __future__ import annotations

from ...module import NAMES
from ..learned import layers
from ..run import Run
from ..tables import NOTHING, Grid
from .published import LEARNED, LEARNED_NAMES, TITLES
from .standing import Standing
from .variants import before_reuse

CONDITION = "cifar10"
# Contests and rows of SReLU that was frozen for different times; `left` keeps t_r where it was set.
ADAPTED = {
    "ablation-left": "srelu:left",
    "headline-cifar10": "nin+srelu",
    "published-cifar10": "nin+srelu",
    "ablation-freeze25": "srelu:freeze25",
    "reuse-cifar10": "reuse:srelu",
}
NOTE = (
    "Mean t_r over the channels of a layer and n seeds at the end of the training, by the epoch "
    "after which it was set. Kept: not learned from there on. Reused: set in a leaky ReLU network "
    f"that had been trained for {before_reuse(CONDITION, 1).epochs} epochs."
)


def grids(standing: Standing) -> list[Grid]:
    """The table of what was run; nothing where no two moments can be compared."""
    found = {name: standing.rival(name, row) for name, row in ADAPTED.items()}
    ours = {_words(r.finished[0].run): r for r in found.values() if r and r.finished}
    if len(ours) < 2:
        return []
    learned = [layers(rival) for rival in ours.values()]
    place, published = NAMES.index("t_r"), LEARNED_NAMES.index("t_r")
    rows = [
        [
            layer,
            *(f"{o[layer].mean[place]:.2f}" if layer in o else NOTHING for o in learned),
            f"{values[published]:.2f}",
        ]
        for layer, values in LEARNED[CONDITION].items()
    ]
    rows.append(["n", *(str(len(rival.finished)) for rival in ours.values()), NOTHING])
    headers = ["layer", *ours, "paper"]
    return [Grid(f"When t_r was set: {TITLES[CONDITION]}", headers, rows, NOTE)]


def _words(run: Run) -> str:
    """After how many epochs its t_r was set."""
    when = "reused" if run.start else f"{run.freeze} of {run.epochs}"
    return f"{when}, kept" if "t_r" in run.fixed else when
