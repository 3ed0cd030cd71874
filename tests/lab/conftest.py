"""Every test of the laboratory has its own cache, its own data folders and one thread.

Those of the reproduction share records of its first two blocks.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from reproduction import all_of

from torch_srelu.lab.paper.results import PaperResults
from torch_srelu.lab.records import archives


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("SRELU_DATA", raising=False)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both blocks of the headline, as a project has them."""
    root = tmp_path_factory.mktemp("project")
    archives.collect(all_of(root / "runs", "headline", "seeds"), root / "results")
    return root / "results"


@pytest.fixture(scope="session")
def paper_results(results: Path) -> PaperResults:
    return PaperResults.committed(results)
