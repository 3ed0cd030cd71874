"""The laboratory's packages import only from those before them, and nothing imports it."""

from __future__ import annotations

import pytest

from import_graph import Modules, cycles, main, packages

LAB = "torch_srelu.lab"
ORDER = [
    "util",
    "runtime",
    "data",
    "models",
    "config",
    "records",
    "training",
    "engine",
    "analysis",
    "report",
    "paper",
    "cli",
]
# Module -> modules of later packages that it still imports.
ALLOWED = {}


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    return Modules().imports()


def test_every_package_has_its_place(imports):
    names = {name.split(".")[2] for name in imports if name.startswith(f"{LAB}.")}
    assert names == set(ORDER)


def test_packages_import_only_from_those_before_them(imports):
    def rank(module: str) -> int:
        return ORDER.index(module.split(".")[2])

    later: dict[str, set[str]] = {}
    for name, found in imports.items():
        for other in found:
            if name.startswith(f"{LAB}.") and other.startswith(f"{LAB}."):
                short, far = name.removeprefix(f"{LAB}."), other.removeprefix(f"{LAB}.")
                if rank(other) > rank(name):
                    later.setdefault(short, set()).add(far)
    assert later == ALLOWED


def test_only_the_command_imports_the_laboratory(imports):
    outside = {name for name in imports if not name.startswith(LAB)}
    users = {n for n in outside if any(other.startswith(LAB) for other in imports[n])}
    assert users == {"torch_srelu.__main__"}


def test_imports_are_found_wherever_they_stand(tmp_path, capsys):
    files = {
        "__init__.py": "from .a import thing as renamed",
        "a.py": "thing = 1",
        "b.py": "def late():\n    from . import renamed",
        "c/__init__.py": "from .inner import f",
        "c/inner.py": "import torch_srelu as ts\nf = ts.renamed",
        "d.py": "from .c import f\nfrom .lab.x import y",
        "lab/__init__.py": "",
        "lab/x/__init__.py": "y = 1",
        "lab/x/z.py": "import torch_srelu.d",
    }
    for name, text in files.items():
        path = tmp_path / "torch_srelu" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = packages(Modules(tmp_path).imports())
    assert graph == {"a": set(), "b": {"a"}, "c": {"a"}, "d": {"c", "lab.x"}, "lab.x": {"d"}}
    assert cycles(graph) == [["d", "lab.x"]]
    assert main(tmp_path) == 1
    assert "cycle: d, lab.x" in capsys.readouterr().out
