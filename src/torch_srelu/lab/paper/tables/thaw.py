"""When SReLU was adapted to its inputs, and which t_r that gave, beside Table 3.

t_r is set to a percentile of a layer's inputs when the freeze ends, and inputs grow with training:
so the paper's t_r tell something about the length of its freeze, which it does not state.
"""

from __future__ import annotations

from ....module import NAMES
from ...analysis.comparison_tables import NOTHING, TextTable
from ...analysis.learned_parameters import learned_layers
from ...config.run import Run
from ..published import CIFAR10, CIFAR100, LEARNED, LEARNED_NAMES, TITLES
from ..standing import Standing
from ..variants import before_reuse

# Contests and rows of SReLU that was frozen for different times; `left` keeps t_r where it was set.
ADAPTED = {
    CIFAR10: {
        "ablation-left": "srelu:left",
        "headline-cifar10": "nin+srelu",
        "published-cifar10": "nin+srelu",
        "ablation-freeze25": "srelu:freeze25",
        "reuse-cifar10": "reuse:srelu",
    },
    CIFAR100: {"headline-cifar100": "nin+srelu", "published-cifar100": "nin+srelu"},
}
NOTE = (
    "Mean t_r over the channels of a layer and n seeds at the end of the training, by the epoch "
    "after which it was set."
)
CIFAR10_NOTE = (
    f"{NOTE} Kept: not learned from there on. Reused: set in a leaky ReLU network "
    f"that had been trained for {before_reuse(CIFAR10, 1).epochs} epochs."
)


def grids(standing: Standing) -> list[TextTable]:
    """One table for each data set of which two moments can be compared."""
    made = (_grid(condition, standing) for condition in ADAPTED)
    return [grid for grid in made if grid is not None]


def _grid(condition: str, standing: Standing) -> TextTable | None:
    found = [standing.rival(name, row) for name, row in ADAPTED[condition].items()]
    ours = {_words(r.finished[0].run): r for r in found if r and r.finished}
    if len(ours) < 2:
        return None
    learned = [learned_layers(rival) for rival in ours.values()]
    place, published = NAMES.index("t_r"), LEARNED_NAMES.index("t_r")
    rows = [
        [
            layer,
            *(f"{o[layer].mean[place]:.2f}" if layer in o else NOTHING for o in learned),
            f"{values[published]:.2f}",
        ]
        for layer, values in LEARNED[condition].items()
    ]
    rows.append(["n", *(str(len(rival.finished)) for rival in ours.values()), NOTHING])
    headers = ["layer", *ours, "paper"]
    note = CIFAR10_NOTE if condition == CIFAR10 else NOTE
    return TextTable(f"When t_r was set: {TITLES[condition]}", headers, rows, note)


def _words(run: Run) -> str:
    """After how many epochs its t_r was set."""
    when = "reused" if run.start else f"{run.freeze} of {run.epochs}"
    return f"{when}, kept" if "t_r" in run.fixed else when
