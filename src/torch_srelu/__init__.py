"""SReLU, the S-shaped rectified linear unit, for PyTorch: per channel, fused, right everywhere."""

from .adapt import AdaptiveInit
from .functional import srelu
from .module import LazySReLU, SReLU
from .ops.backends import backends, use_backend
from .optim import param_groups

__version__ = "0.1.0"

__all__ = [
    "AdaptiveInit",
    "LazySReLU",
    "SReLU",
    "__version__",
    "backends",
    "param_groups",
    "srelu",
    "use_backend",
]
