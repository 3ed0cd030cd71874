"""The numbers of the paper's five tables, as printed there.

Errors are in percent. Names of rows and conditions are those of our own runs; what is known of a
row, and rows that the paper does not have but that help to read it, stand beside its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

CIFAR10, CIFAR100 = "cifar10", "cifar100"
FLIPS10, FLIPS100 = "cifar10+flips", "cifar100+flips"
MNIST, IMAGENET = "mnist", "imagenet"
CIFAR = (CIFAR10, CIFAR100)

TITLES = {
    CIFAR10: "CIFAR-10",
    CIFAR100: "CIFAR-100",
    FLIPS10: "CIFAR-10 with flips",
    FLIPS100: "CIFAR-100 with flips",
    MNIST: "MNIST",
    IMAGENET: "ImageNet",
}


@dataclass(frozen=True)
class PublishedRow:
    """A row of a table of errors.

    Attributes:
        name: What it is called here.
        title: What the paper calls it.
        parameters: Number of parameters as the paper has it; "" where it gives none.
        errors: Error by condition; None where we run it though the paper has no error.
        note: What a reader should know about it.
    """

    name: str
    title: str
    parameters: str
    errors: dict[str, float | None]
    note: str = ""


class PublishedTable(NamedTuple):
    """A table of errors: number, conditions and rows in the paper's order.

    ``beside`` are rows that the paper does not have and that help to read those that it has.
    """

    number: int
    conditions: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    beside: tuple[PublishedRow, ...] = ()

    def rows_under(self, condition: str) -> list[PublishedRow]:
        """All rows that have an error under a condition, in the paper or here."""
        return [row for row in (*self.rows, *self.beside) if condition in row.errors]


def _errors(*errors: float | None) -> dict[str, float | None]:
    """The errors of a row of Table 2, in the order of its columns."""
    columns = (CIFAR10, CIFAR100, FLIPS10, FLIPS100)
    return {c: error for c, error in zip(columns, errors, strict=False) if error is not None}


def _ours(name: str, title: str, *conditions: str, note: str = "") -> PublishedRow:
    """A row that the paper does not have."""
    return PublishedRow(name, title, "", dict.fromkeys(conditions), note)


_OTHER = "the paper's value appears to come from another protocol"
_BY_HAND = "the paper does not say which values were set"
_TOP5 = "the published model's top-5 error, though the paper does not say so"
_SLOW = "SReLU's own parameters learn at a tenth of the rate"
_NEURON = "as its authors published it; the paper has their error but counts it per channel"
_APL = PublishedRow(
    "nin+apl", "NIN + APL", "0.97M + 5.68K/2.84K", _errors(9.59, 34.40, 7.51, 30.83), _OTHER
)

_Row = PublishedRow
TABLE1 = PublishedTable(
    1,
    (CIFAR10,),
    (
        _Row("nin+relu", "NIN + ReLU", "", {CIFAR10: 10.43}, "quoted from the authors of NIN"),
        _Row("nin+srelu-shared", "NIN + SReLU, shared", "", {CIFAR10: 9.01}),
        _Row("nin+srelu", "NIN + SReLU", "", {CIFAR10: 8.41}),
    ),
    (
        _ours("srelu:shared-slow", "NIN + SReLU, shared, slow", CIFAR10, note=_SLOW),
        _ours("nin", "NIN, its authors' training", CIFAR10),
    ),
)
TABLE2 = PublishedTable(
    2,
    (CIFAR10, CIFAR100, FLIPS10, FLIPS100),
    (
        _Row("maxout", "Maxout", "> 5M", _errors(11.68, 38.57, 9.38)),
        _Row("probmaxout", "Prob maxout", "> 5M", _errors(11.35, 38.14, 9.39)),
        _Row("apl", "APL", "> 5M", _errors(11.38, 34.54, 9.89, 33.88)),
        _Row("dsn", "DSN", "0.97M", _errors(9.78, 34.57, 8.22)),
        _Row("tree", "Tree based priors", "", _errors(None, 36.85)),
        _Row("nin", "NIN", "0.97M", _errors(10.41, 35.68, 8.81)),
        _Row("nin+relu", "NIN + ReLU", "0.97M", _errors(9.67, 35.96, 7.73, 32.75), _OTHER),
        _Row("nin+lrelu", "NIN + LReLU", "0.97M", _errors(9.75, 36.00, 7.69, 32.70), _OTHER),
        _Row("nin+prelu", "NIN + PReLU", "0.97M + 1.42K", _errors(9.74, 35.95, 7.68, 32.67)),
        _APL,
        _Row(
            "nin+srelu-manual",
            "NIN + SReLU, by hand",
            "0.97M + 5.68K",
            _errors(8.61, 31.36),
            _BY_HAND,
        ),
        _Row("nin+srelu", "NIN + SReLU", "0.97M + 5.68K", _errors(8.41, 31.10, 6.98, 29.91)),
    ),
    (
        _Row(
            "nin+apl-neuron",
            "NIN + APL, per neuron",
            "0.97M + 5.68K",
            {CIFAR10: _APL.errors[CIFAR10]},
            _NEURON,
        ),
        _ours("linear", "Linear classifier", *CIFAR),
        _ours("linear-gcn", "Linear classifier, not whitened", *CIFAR),
    ),
)
TABLE4 = PublishedTable(
    4,
    (MNIST,),
    (
        _Row("stochastic-pooling", "Stochastic Pooling", "", {MNIST: 0.47}),
        _Row("maxout", "Maxout", "0.42M", {MNIST: 0.47}, "0.45 % by its authors"),
        _Row("dsn", "DSN", "0.35M", {MNIST: 0.35}),
        _Row("nin+relu", "NIN + ReLU", "0.35M", {MNIST: 0.47}),
        _Row("nin+lrelu", "NIN + LReLU", "0.35M", {MNIST: 0.42}),
        _Row("nin+prelu", "NIN + PReLU", "0.35M + 1.42K", {MNIST: 0.41}),
        _Row("nin+srelu", "NIN + SReLU", "0.35M + 5.68K", {MNIST: 0.35}),
    ),
    (_ours("linear", "Linear classifier", MNIST),),
)
TABLE5 = PublishedTable(
    5,
    (IMAGENET,),
    (
        _Row("googlenet", "GoogLeNet", "5M", {IMAGENET: 11.1}, _TOP5),
        _Row("googlenet+srelu", "GoogLeNet + SReLU", "5M + 21.6K", {IMAGENET: 9.86}),
    ),
    (_ours("googlenet+prelu", "GoogLeNet + PReLU", IMAGENET),),
)
TABLES = {"table1": TABLE1, "table2": TABLE2, "table4": TABLE4, "table5": TABLE5}

# Every error of the paper by row and condition; where Tables 1 and 2 disagree, Table 2 counts.
ERRORS: dict[tuple[str, str], float] = {
    (row.name, condition): error
    for table in TABLES.values()
    for row in table.rows
    for condition, error in row.errors.items()
    if error is not None
}

# Table 3: mean learned parameters by layer, t_r, t_l, a_r, a_l, on CIFAR-10 and on CIFAR-100.
LEARNED: dict[str, dict[str, tuple[float, float, float, float]]] = {
    CIFAR10: {
        "conv1": (0.91, -0.48, 0.81, -0.25),
        "cccp1": (1.06, -0.36, 0.77, -0.04),
        "cccp2": (1.27, -0.20, 0.47, 0.39),
        "conv2": (5.32, -0.31, 1.01, 0.07),
        "cccp3": (6.95, -0.21, 0.92, -0.01),
        "cccp4": (8.18, -0.08, 0.77, 0.61),
        "conv3": (25.17, -0.15, 1.21, 0.05),
        "cccp5": (31.09, -0.47, 0.97, -0.16),
        "cccp6": (72.03, -0.13, 1.53, -0.44),
    },
    CIFAR100: {
        "conv1": (0.73, -0.68, 0.62, -0.22),
        "cccp1": (0.52, -0.34, 0.38, 0.04),
        "cccp2": (0.37, -0.26, 0.51, 0.44),
        "conv2": (4.02, -0.51, 0.88, 0.06),
        "cccp3": (4.73, -0.79, 0.64, 0.05),
        "cccp4": (5.79, -0.13, 0.56, 0.45),
        "conv3": (23.72, -0.61, 1.42, 0.07),
        "cccp5": (36.44, -0.46, 1.36, -0.02),
        "cccp6": (66.13, -0.21, 1.23, -0.35),
    },
}
