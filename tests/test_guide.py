"""Runs the guide: each of its code blocks, in order, in one namespace."""

import re
import tomllib
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"
PROJECT = GUIDE.parents[1] / "pyproject.toml"
NEEDS = {
    "sklearn": "scikit-learn",
    "lightning": "lightning",
    "transformers": "transformers",
    "timm": "timm",
}


def blocks(language):
    """Line number and text of every block of a language."""
    text = GUIDE.read_text()
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start(1)].count("\n"), match[1]) for match in found]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of Lightning's own code
@pytest.mark.filterwarnings("ignore::UserWarning:lightning")  # its advice about loaders
def test_the_code_blocks_run_and_print_what_the_guide_shows(capsys):
    for package in NEEDS:
        pytest.importorskip(package)
    namespace = {}
    printed = []
    for line, code in blocks("python"):
        exec(compile("\n" * line + code, str(GUIDE), "exec"), namespace)
        printed.append(capsys.readouterr().out)
    assert printed
    for _, shown in blocks("text"):
        assert shown in printed
    assert namespace["wrong"] < 0.2  # ten classes: it has learned


def test_one_line_installs_what_the_code_imports():
    code = "\n".join(text for _, text in blocks("python"))
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    assert imported - {"torch", "torch_srelu"} == NEEDS.keys()
    (line,) = re.findall(r"pip install .*\[(.+)\]", GUIDE.read_text())
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    installed = {package for extra in line.split(",") for package in extras[extra]}
    assert set(NEEDS.values()) <= installed
