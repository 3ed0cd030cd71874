"""Runs whose network, activation and data set do not fit each other are refused."""

import pytest

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.training.loop import train
from torch_srelu.lab.training.run_checks import checked


def test_numbers_of_options_are_of_the_type_of_their_default():
    whole, float_ = (recipe("digits", "srelu", seed=1, options={"a_l": v}) for v in (1, 1.0))
    assert whole.key() != float_.key() == checked(whole).key() == checked(float_).key()
    hinges = recipe("digits", "apl", seed=1, options={"hinges": 2})
    assert checked(hinges).key() == hinges.key()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"net": "nin-digit"}, "unknown net 'nin-digit': did you mean 'nin-digits'"),
        ({"net": "nin-mnist"}, "choose nin-digits"),
        ({"options": {"al": 1.0}}, "did you mean 'a_l'"),
        ({"options": {"a_l": "x"}}, "must be like its default 0.2"),
        ({"activation": "maxout", "freeze": 0}, "cannot have the activation maxout"),
        ({"activation": "relu", "freeze": 1}, "nothing to freeze"),
        ({"activation": "relu", "fixed": ("t_r",)}, "activation is relu"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(tmp_path, changes, message):
    run = recipe("digits", **({"activation": "srelu", "seed": 1} | changes))
    with pytest.raises(ValueError, match=message):
        checked(run)
    with pytest.raises(ValueError, match=message):
        train(run, tmp_path, device="cpu")
    assert list(tmp_path.iterdir()) == []
