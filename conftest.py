"""What tests and doctests need before anything is imported."""

import atexit
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec

import pytest
import torch
from hypothesis import HealthCheck, settings

import missing_operators  # noqa: F401

# Without a GPU the Triton kernels run in Triton's interpreter, which must be chosen before Triton
# is imported by anyone.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# What torch.compile has kept from another version of our operators is not ours to test.
if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
    cache = tempfile.mkdtemp(prefix="inductor-")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    atexit.register(shutil.rmtree, cache, ignore_errors=True)

# Several test processes share the cores: threads of one would wait for those of the others.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

settings.register_profile(
    "srelu",
    deadline=None,  # timing never decides a test
    derandomize=True,  # a failure on one machine is a failure on the next
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("srelu")

# Without the library there is nothing to integrate with.
collect_ignore = [
    f"src/torch_srelu/integrations/{name}.py"
    for name in ("lightning", "timm", "transformers")
    if find_spec(name) is None
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in a browser are slow ones."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _fresh_compiler():
    """torch.compile gives up on a function that it has compiled too often, in whatever test."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


@pytest.fixture(scope="module")
def one_thread():
    """For tensors so small that threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
