"""What the gain is made of: SReLU with one decision changed or reused, ReLU trained for longer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..comparison import Comparison, Rival, Versus
from ..fates import DEAD, DIVERGED
from ..statistics import holm
from ..tables import NOTHING, Grid, interval, probability
from .blocks import BLOCKS, contests
from .cells import fates_in_words, mean_error
from .contests import with_needs
from .standing import Standing
from .variants import ABLATIONS, FURTHER_EPOCHS, LONGER, REUSED_SLOPE


@dataclass(frozen=True)
class Question:
    """One rival against another, over the seeds that both finished.

    Attributes:
        words: What is asked.
        contest: The contest whose runs answer it.
        row: The rival's row in it.
        against: Contest and row of what it is measured against.
    """

    words: str
    contest: str
    row: str
    against: tuple[str, str]


def _changed(words: str, contest: str, row: str) -> Question:
    return Question(words, contest, row, (contest, "nin+srelu"))


CHANGED = [
    *(_changed(a.words, f"ablation-{name}", f"srelu:{name}") for name, a in ABLATIONS.items()),
    _changed("t_r = 1, never frozen", "units-cifar10", "nin+srelu-manual"),
    _changed("shared by channels", "shared-cifar10", "nin+srelu-shared"),
]
OTHERS = [
    Question(
        "reused: as SReLU - as leaky ReLU",
        "reuse-cifar10",
        "reuse:srelu",
        ("reuse-cifar10", "reuse:lrelu"),
    ),
    Question(
        "longer ReLU - SReLU", "compute-cifar10", "relu:longer", ("headline-cifar10", "nin+srelu")
    ),
    Question(
        "longer ReLU - ReLU", "compute-cifar10", "relu:longer", ("headline-cifar10", "nin+relu")
    ),
    Question(
        "leaky ReLU - SReLU", "reuse-before", "reuse:before", ("headline-cifar10", "nin+srelu")
    ),
    Question("leaky ReLU - ReLU", "reuse-before", "reuse:before", ("headline-cifar10", "nin+relu")),
]
CHANGED_NOTE = (
    "Of one side, of slopes or of thresholds only: the other parameters stay where they began, or "
    "where the adaptive initialisation put them. Percentile: of the inputs that t_r is set to; the "
    "10th is what the paper's formula says literally. Learning rate: of SReLU's parameters."
)
OTHERS_NOTE = (
    f"Leaky ReLU: with a slope of {REUSED_SLOPE}, which a frozen SReLU is. Reused: such a network "
    f"when it is finished, {FURTHER_EPOCHS} more epochs as SReLU, adapted first, or as it is. "
    f"Longer ReLU: for {LONGER} times SReLU's epochs, which is more than its time."
)


def grids(standing: Standing) -> list[Grid]:
    """Both tables: decisions of SReLU on CIFAR-10, and what it is compared with otherwise."""
    return [
        _grid("SReLU with one decision changed, CIFAR-10", CHANGED, CHANGED_NOTE, standing),
        _grid(
            "SReLU reused, leaky ReLU, and ReLU given more than SReLU's time, CIFAR-10",
            OTHERS,
            OTHERS_NOTE,
            standing,
        ),
    ]


def _grid(title: str, questions: list[Question], words: str, standing: Standing) -> Grid:
    answers = [answer(question, standing) for question in questions]
    corrected = holm([a.versus.paired.p if a.versus else None for a in answers])
    rows = [
        [question.words, *_numbers(found, p)]
        for question, found, p in zip(questions, answers, corrected, strict=True)
    ]
    note = (
        "Test error in percent; the difference is paired over n seeds, with Student's 95 % "
        "interval and p corrected by Holm over this table."
    )
    both = list(zip(questions, answers, strict=True))
    fates = [line for question, found in both for line in _fates(question, found)]
    unanswered = {
        name
        for question, found in both
        if found.versus is None
        for name, rival in ((question.contest, found.rival), (question.against[0], found.base))
        if rival is None or standing.missing(contests([name]))
    }
    headers = ["", "error", "sd", "difference", "95 % interval", "n", "p (Holm)"]
    notes = [note, words, *fates, *_not_run(unanswered, standing)]
    return Grid(title, headers, rows, "\n".join(notes))


def _not_run(names: set[str], standing: Standing) -> Iterator[str]:
    """The blocks that answer what is open, and what they cost."""
    for name, block in BLOCKS.items():
        missing = [c for c in with_needs(block.contests) if c.name in names]
        if missing:
            # A block on one data set trains nothing but what is missing here: all of that, seeds of
            # what is answered by fewer included.
            whole = len({contest.condition for contest in block.contests}) == 1
            what = name if whole else " ".join(contest.name for contest in missing)
            trained = with_needs(block.contests) if whole else missing
            yield f"Not run: `srelu paper run {what}`, {standing.cost(trained)}."


class Answer(NamedTuple):
    """What the records say to a question; None where they say nothing."""

    rival: Rival | None
    base: Rival | None  # what it is measured against
    versus: Versus | None


def answer(question: Question, standing: Standing) -> Answer:
    """Rival and base as far as they have records, and the difference if both have finished."""
    rival = standing.rival(question.contest, question.row)
    base = standing.rival(*question.against)
    if rival is None or base is None:
        return Answer(rival, base, None)
    versus = Comparison("", {}, (base, rival), base).versus.get(rival.name)
    return Answer(rival, base, versus)


def _fates(question: Question, found: Answer) -> Iterator[str]:
    """What became of runs that diverged and, where none is left, of those that were dead."""
    asked = [(question.words, found.rival)]
    if found.rival and not found.versus:
        asked.append((f"{question.words}, base", found.base))
    for who, rival in asked:
        if rival is not None:
            met = fates_in_words(rival, (DIVERGED,) if rival.summary else (DEAD, DIVERGED))
            if met:
                yield f"{who}: {', '.join(met)}."


def _numbers(found: Answer, p: float | None) -> list[str]:
    if found.rival is None:
        return ["not run", *[NOTHING] * 5]
    difference = [NOTHING] * 4
    if found.versus is not None:
        paired = found.versus.paired
        span = interval(paired.interval)
        difference = [f"{paired.mean:+.2f}", span, str(paired.n), probability(p)]
    summary = found.rival.summary
    spread = f"{summary.std:.2f}" if summary and summary.std is not None else NOTHING
    return [mean_error(found.rival), spread, *difference]
