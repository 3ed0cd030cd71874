"""What the gain is made of: SReLU with one decision changed or reused, ReLU trained for longer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...analysis.comparison import BaselineDifference, Comparison, Rival
from ...analysis.comparison_tables import NOTHING, TextTable, format_interval, format_p_value
from ...analysis.sample_statistics import holm
from ...config.recipes import LENGTHS
from ...records.run_status import DEAD, DIVERGED
from ..blocks import BLOCKS, contests
from ..contests import with_needs
from ..standing import Standing
from ..variants import ABLATIONS, FURTHER_EPOCHS, LONGER, REUSED_SLOPE
from .cells import fates_in_words, mean_error


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
# Contest and row of those that are asked about, by name.
RIVALS = {
    "longer ReLU": ("compute-cifar10", "relu:longer"),
    "leaky ReLU": ("reuse-before", "reuse:before"),
    "reused as leaky ReLU": ("reuse-cifar10", "reuse:lrelu"),
    "reused as SReLU": ("reuse-cifar10", "reuse:srelu"),
}
_MAIN = {
    "ReLU": ("headline-cifar10", "nin+relu"),
    "PReLU": ("headline-cifar10", "nin+prelu"),
    "SReLU": ("headline-cifar10", "nin+srelu"),
    "SReLU, CIFAR-100": ("headline-cifar100", "nin+srelu"),
    "ReLU of the published length": ("published-cifar10", "nin+relu"),
    "the same, CIFAR-100": ("published-cifar100", "nin+relu"),
    "SReLU, learning rate x 0.1": ("ablation-slow", "srelu:slow"),
    "SReLU, left side only": ("ablation-left", "srelu:left"),
}
OTHERS = [
    Question(f"{rival} - {base}", *(_MAIN | RIVALS)[rival], (_MAIN | RIVALS)[base])
    for rival, base in (
        ("reused as SReLU", "reused as leaky ReLU"),
        ("longer ReLU", "SReLU"),
        ("longer ReLU", "ReLU"),
        ("ReLU of the published length", "SReLU"),
        ("the same, CIFAR-100", "SReLU, CIFAR-100"),
        ("leaky ReLU", "SReLU"),
        ("leaky ReLU", "ReLU"),
        ("SReLU, left side only", "PReLU"),
        ("SReLU, learning rate x 0.1", "PReLU"),
        ("SReLU, learning rate x 0.1", "ReLU"),
    )
]
CHANGED_NOTE = (
    "Of one side, of slopes or of thresholds only: the other parameters stay where they began, or "
    "where the adaptive initialisation put them. Percentile: of the inputs that t_r is set to; the "
    "10th is what the paper's formula says literally. Learning rate: of SReLU's parameters."
)
OTHERS_NOTE = (
    f"Leaky ReLU: with a slope of {REUSED_SLOPE}, which a frozen SReLU is. Reused: such a network "
    f"when it is finished, {FURTHER_EPOCHS} more epochs as SReLU, adapted first, or as it is. "
    f"Longer ReLU: for {LONGER} times SReLU's epochs, which is more than its time. Published "
    f"length: {LENGTHS['published']['cifar10']} epochs, where SReLU has "
    f"{LENGTHS['short']['cifar10']}."
)


def grids(standing: Standing) -> list[TextTable]:
    """Both tables: decisions of SReLU on CIFAR-10, and what it is compared with otherwise."""
    return [
        _grid("SReLU with one decision changed, CIFAR-10", CHANGED, CHANGED_NOTE, standing),
        _grid("Further differences, CIFAR-10 if not said otherwise", OTHERS, OTHERS_NOTE, standing),
    ]


def changed(standing: Standing) -> dict[str, Rival]:
    """SReLU with one decision changed, and `RIVALS`, as far as they finished; by name."""
    asked = {question.words: (question.contest, question.row) for question in CHANGED} | RIVALS
    found = {name: standing.rival(*place) for name, place in asked.items()}
    return {name: rival for name, rival in found.items() if rival and rival.summary}


def _grid(title: str, questions: list[Question], words: str, standing: Standing) -> TextTable:
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
    return TextTable(title, headers, rows, "\n".join(notes))


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
    versus: BaselineDifference | None


def answer(question: Question, standing: Standing) -> Answer:
    """Rival and base as far as they have records, and the difference if both have finished."""
    rival = standing.rival(question.contest, question.row)
    base = standing.rival(*question.against)
    if rival is None or base is None:
        return Answer(rival, base, None)
    versus = Comparison("", {}, (base, rival), base).differences.get(rival.name)
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
        span = format_interval(paired.interval)
        difference = [f"{paired.mean:+.2f}", span, str(paired.n), format_p_value(p)]
    summary = found.rival.summary
    spread = f"{summary.std:.2f}" if summary and summary.std is not None else NOTHING
    return [mean_error(found.rival), spread, *difference]
