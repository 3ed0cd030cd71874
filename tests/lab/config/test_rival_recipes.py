"""Every recipe is a run that can be trained."""

import pytest

from torch_srelu.lab.config.rival_recipes import RECIPES, SHORT, rival
from torch_srelu.lab.config.run import learning_rate
from torch_srelu.lab.training.run_checks import checked

CELLS = [(system, data) for system, of in RECIPES.items() for data in of]


@pytest.mark.parametrize(("system", "data"), CELLS)
def test_a_recipe_fits_its_data_and_its_network(system, data):
    act = {"activation": "srelu"} if system == "googlenet" else {}
    run = rival(system, data, seed=1, **act)
    assert checked(run).key() == run.key()
    short = rival(system, data, seed=1, epochs=SHORT, **act)
    assert short.epochs == SHORT
    assert learning_rate(run, 999, 1000) < 0.1 * run.lr  # it falls


def test_every_system_of_the_tables_has_its_cells():
    paper = {
        "maxout": {"cifar10", "cifar100", "mnist"},
        "probout": {"cifar10", "cifar100"},
        "apl-network": {"cifar10", "cifar100"},
        "dsn": {"cifar10", "cifar100", "mnist"},
        "tree-prior": {"cifar100"},
        "stochastic-pooling": {"mnist"},
        "googlenet": {"imagenet"},
    }
    for system, cells in paper.items():
        assert cells <= set(RECIPES[system])


def test_unknown_names_list_the_choices():
    with pytest.raises(ValueError, match="did you mean 'maxout'"):
        rival("maxuot", "cifar10", 1)
    with pytest.raises(ValueError, match="unknown data set for tree-prior 'cifar10'"):
        rival("tree-prior", "cifar10", 1)


def test_googlenet_wants_an_activation_and_freezes_srelu():
    with pytest.raises(ValueError, match="googlenet takes any activation"):
        rival("googlenet", "imagenette", 1)
    assert rival("googlenet", "imagenette", 1, activation="srelu").freeze == 5
