"""The numbers of the paper's five tables, as printed there, and which rows of ours stand beside.

Errors are in percent; names of rows and conditions are those of our own runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

CIFAR10, CIFAR100 = "cifar10", "cifar100"
FLIPS10, FLIPS100 = "cifar10+flips", "cifar100+flips"
MNIST, IMAGENET = "mnist", "imagenet"

TITLES = {
    CIFAR10: "CIFAR-10",
    CIFAR100: "CIFAR-100",
    FLIPS10: "CIFAR-10 with flips",
    FLIPS100: "CIFAR-100 with flips",
    MNIST: "MNIST",
    IMAGENET: "ImageNet",
}


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes:
        name: What it is called here.
        title: What the paper calls it.
        parameters: Number of parameters as the paper has it; "" where it gives none.
        errors: Error by condition.
        note: What a reader should know about it.
        alone: Conditions under which we run it though the paper has no error.
    """

    name: str
    title: str
    parameters: str
    errors: dict[str, float] = field(default_factory=dict)
    note: str = ""
    alone: tuple[str, ...] = ()


class Table(NamedTuple):
    """A table of errors: number, conditions and rows in the paper's order.

    ``beside`` are rows that the paper does not have and that help to read those that it has.
    """

    number: int
    conditions: tuple[str, ...]
    rows: tuple[Row, ...]
    beside: tuple[Row, ...] = ()

    def under(self, condition: str) -> list[Row]:
        """All rows that have an error under a condition, in the paper or here."""
        rows = (*self.rows, *self.beside)
        return [row for row in rows if condition in row.errors or condition in row.alone]


_OTHER_PROTOCOL = "the paper's value appears to come from another protocol"

TABLE1 = Table(
    1,
    (CIFAR10,),
    (
        Row("nin+relu", "NIN + ReLU", "", {CIFAR10: 10.43}, "quoted from the authors of NIN"),
        Row("nin+srelu-shared", "NIN + SReLU, shared", "", {CIFAR10: 9.01}),
        Row("nin+srelu", "NIN + SReLU", "", {CIFAR10: 8.41}),
    ),
    (
        Row(
            "srelu:shared-slow",
            "NIN + SReLU, shared, slow",
            "",
            note="SReLU's own parameters learn at a tenth of the rate",
            alone=(CIFAR10,),
        ),
        Row("nin", "NIN, its authors' training", "", alone=(CIFAR10,)),
    ),
)

TABLE2 = Table(
    2,
    (CIFAR10, CIFAR100, FLIPS10, FLIPS100),
    (
        Row(
            "maxout",
            "Maxout",
            "> 5M",
            {CIFAR10: 11.68, CIFAR100: 38.57, FLIPS10: 9.38},
        ),
        Row(
            "probmaxout",
            "Prob maxout",
            "> 5M",
            {CIFAR10: 11.35, CIFAR100: 38.14, FLIPS10: 9.39},
        ),
        Row(
            "apl",
            "APL",
            "> 5M",
            {CIFAR10: 11.38, CIFAR100: 34.54, FLIPS10: 9.89, FLIPS100: 33.88},
        ),
        Row("dsn", "DSN", "0.97M", {CIFAR10: 9.78, CIFAR100: 34.57, FLIPS10: 8.22}),
        Row("tree", "Tree based priors", "", {CIFAR100: 36.85}),
        Row("nin", "NIN", "0.97M", {CIFAR10: 10.41, CIFAR100: 35.68, FLIPS10: 8.81}),
        Row(
            "nin+relu",
            "NIN + ReLU",
            "0.97M",
            {CIFAR10: 9.67, CIFAR100: 35.96, FLIPS10: 7.73, FLIPS100: 32.75},
            _OTHER_PROTOCOL,
        ),
        Row(
            "nin+lrelu",
            "NIN + LReLU",
            "0.97M",
            {CIFAR10: 9.75, CIFAR100: 36.00, FLIPS10: 7.69, FLIPS100: 32.70},
            _OTHER_PROTOCOL,
        ),
        Row(
            "nin+prelu",
            "NIN + PReLU",
            "0.97M + 1.42K",
            {CIFAR10: 9.74, CIFAR100: 35.95, FLIPS10: 7.68, FLIPS100: 32.67},
        ),
        Row(
            "nin+apl",
            "NIN + APL",
            "0.97M + 5.68K/2.84K",
            {CIFAR10: 9.59, CIFAR100: 34.40, FLIPS10: 7.51, FLIPS100: 30.83},
            _OTHER_PROTOCOL,
        ),
        Row(
            "nin+srelu-manual",
            "NIN + SReLU, by hand",
            "0.97M + 5.68K",
            {CIFAR10: 8.61, CIFAR100: 31.36},
            "the paper does not say which values were set",
        ),
        Row(
            "nin+srelu",
            "NIN + SReLU",
            "0.97M + 5.68K",
            {CIFAR10: 8.41, CIFAR100: 31.10, FLIPS10: 6.98, FLIPS100: 29.91},
        ),
    ),
    (
        Row(
            "nin+apl-neuron",
            "NIN + APL, per neuron",
            "0.97M + 5.68K",
            {CIFAR10: 9.59},
            "as its authors published it; the paper has their error but counts it per channel",
        ),
        Row("linear", "Linear classifier", "", alone=(CIFAR10, CIFAR100)),
        Row("linear-gcn", "Linear classifier, not whitened", "", alone=(CIFAR10, CIFAR100)),
    ),
)

TABLE4 = Table(
    4,
    (MNIST,),
    (
        Row("stochastic-pooling", "Stochastic Pooling", "", {MNIST: 0.47}),
        Row("maxout", "Maxout", "0.42M", {MNIST: 0.47}, "0.45 % by its authors"),
        Row("dsn", "DSN", "0.35M", {MNIST: 0.35}),
        Row("nin+relu", "NIN + ReLU", "0.35M", {MNIST: 0.47}),
        Row("nin+lrelu", "NIN + LReLU", "0.35M", {MNIST: 0.42}),
        Row("nin+prelu", "NIN + PReLU", "0.35M + 1.42K", {MNIST: 0.41}),
        Row("nin+srelu", "NIN + SReLU", "0.35M + 5.68K", {MNIST: 0.35}),
    ),
    (Row("linear", "Linear classifier", "", alone=(MNIST,)),),
)

TABLE5 = Table(
    5,
    (IMAGENET,),
    (
        Row(
            "googlenet",
            "GoogLeNet",
            "5M",
            {IMAGENET: 11.1},
            "the published model's top-5 error, though the paper does not say so",
        ),
        Row("googlenet+srelu", "GoogLeNet + SReLU", "5M + 21.6K", {IMAGENET: 9.86}),
    ),
    (Row("googlenet+prelu", "GoogLeNet + PReLU", "", alone=(IMAGENET,)),),
)

TABLES: dict[str, Table] = {"table1": TABLE1, "table2": TABLE2, "table4": TABLE4, "table5": TABLE5}

# Table 3: mean learned parameters by layer, t_r, t_l, a_r, a_l, on CIFAR-10 and on CIFAR-100.
LEARNED_NAMES = ("t_r", "t_l", "a_r", "a_l")
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
