"""Unknown names and the suggested ones."""

from __future__ import annotations

import pytest

from torch_srelu.lab.util.choices import check_choice

FRUIT = ["apple", "apples", "apple-pie", "banana"]


def refusal(*arguments: str, **options: str) -> str:
    with pytest.raises(ValueError, match="unknown fruit") as caught:
        check_choice("fruit", arguments[0], FRUIT, **options)
    return str(caught.value)


def test_what_exists_is_accepted() -> None:
    check_choice("fruit", "banana", FRUIT)


def test_a_short_list_is_shown_whole() -> None:
    assert refusal("stone") == (
        "unknown fruit 'stone': choose one of apple, apples, apple-pie, banana"
    )
    assert refusal("bananna").startswith("unknown fruit 'bananna': did you mean 'banana'? Choose")


def test_of_a_long_list_the_nearest_and_where_all_are() -> None:
    near = refusal("appel", listed_by="fruit --list")
    assert near.startswith("unknown fruit 'appel': did you mean 'apple' or 'apples'")
    assert near.endswith("? `fruit --list` lists all")
    assert "banana" not in near
    assert refusal("stone", listed_by="fruit --list") == (
        "unknown fruit 'stone': `fruit --list` lists all"
    )
