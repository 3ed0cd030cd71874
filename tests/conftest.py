"""Runs before every test module is imported."""

import atexit
import os
import shutil
import tempfile

import torch
from hypothesis import HealthCheck, settings

# Without a GPU the Triton kernels run in Triton's interpreter, which must be chosen before Triton
# is imported by anyone.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# What torch.compile has kept from another version of our operators is not ours to test.
if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
    cache = tempfile.mkdtemp(prefix="inductor-")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    atexit.register(shutil.rmtree, cache, ignore_errors=True)

settings.register_profile(
    "srelu",
    deadline=None,  # timing never decides a test
    derandomize=True,  # a failure on one machine is a failure on the next
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("srelu")
