"""SReLU, the S-shaped rectified linear unit, for PyTorch: per channel, fused, right everywhere."""

from .adaptive.adaptive_init import AdaptiveInit
from .conversion.convert_network import convert
from .conversion.network_summary import summary
from .functional import srelu
from .memory import recompute_outputs
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
    "convert",
    "param_groups",
    "recompute_outputs",
    "srelu",
    "summary",
    "use_backend",
]
