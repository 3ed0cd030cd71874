"""SReLU, the S-shaped rectified linear unit, for PyTorch: per channel, fused, right everywhere."""

from .adapt import AdaptiveInit
from .convert import convert
from .functional import srelu
from .memory import recompute_outputs
from .module import LazySReLU, SReLU
from .ops.backends import backends, use_backend
from .optim import param_groups
from .summary import summary

__version__ = "0.1.0"

__all__ = [
    "AdaptiveInit",
    "LazySReLU",
    "SReLU",
    "__version__",
    "backends",
    "convert",
    "param_groups",
    "recompute_outputs",
    "srelu",
    "summary",
    "use_backend",
]
