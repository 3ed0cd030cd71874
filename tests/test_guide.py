"""Runs the guide: each of its code blocks, in order, in one namespace."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"
NEEDS = ("sklearn", "lightning", "transformers", "timm")


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
