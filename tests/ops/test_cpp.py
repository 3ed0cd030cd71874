"""Why eager calls need Python, in words that say what to do."""

import importlib

import pytest

from torch_srelu import backends
from torch_srelu.ops import cpp


@pytest.fixture
def without(monkeypatch, tmp_path):
    """As if nothing had been compiled, in a folder of its own."""
    monkeypatch.setattr(cpp, "compiled", None)
    monkeypatch.setattr(cpp, "_problem", ModuleNotFoundError("no module"))
    monkeypatch.setattr(cpp, "__file__", str(tmp_path / "cpp.py"))
    return tmp_path


def test_not_compiled(without) -> None:
    assert "is not compiled; pip install --no-build-isolation" in (cpp.why_not() or "")
    assert "eager calls: Python" in backends()["cuda"]


def test_compiled_for_another_torch(without) -> None:
    (without / "_eager_torch1_9.cpython-311-x86_64-linux-gnu.so").touch()
    assert f"compiled for torch 1.9, this is {cpp._VERSION}; pip install" in (cpp.why_not() or "")


def test_cannot_be_loaded(without, monkeypatch) -> None:
    monkeypatch.setattr(cpp, "_problem", ImportError("undefined symbol: f"))
    assert "cannot be loaded: undefined symbol: f" in (cpp.why_not() or "")


def test_compiled(monkeypatch) -> None:
    monkeypatch.setattr(cpp, "compiled", object())
    assert cpp.why_not() is None
    assert "eager calls: C++" in backends()["cuda"]


def test_compiled_from_other_sources(monkeypatch) -> None:
    if cpp.compiled is None:
        pytest.skip(f"eager calls need Python: {cpp.why_not()}")
    monkeypatch.setattr(cpp.compiled, "SOURCES", 0)
    try:
        assert "other sources; install again" in (importlib.reload(cpp).why_not() or "")
    finally:
        monkeypatch.undo()
        importlib.reload(cpp)
    assert cpp.why_not() is None
