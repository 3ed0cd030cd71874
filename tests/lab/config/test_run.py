"""Runs: equal decisions have equal keys, impossible ones are refused."""

import dataclasses
import json
import subprocess
import sys

import pytest

from torch_srelu.lab.config.run import Run
from torch_srelu.lab.runtime.seeds import derive

BASE = {
    "dataset": "digits",
    "net": "nin-digits",
    "activation": "srelu",
    "seed": 1,
    "epochs": 4,
    "batch": 32,
    "lr": 0.1,
}


def make(**changes) -> Run:
    return Run(**(BASE | changes))


def test_json_round_trip():
    run = make(
        schedule="multistep", milestones=(0.5, 0.9), fixed=("t_r",), options={"a_l": 0.1}, freeze=1
    )
    again = Run.from_dict(json.loads(json.dumps(run.to_dict())))
    assert again == run
    assert again.key() == run.key()
    assert hash(again) == hash(run)


def test_key_and_random_streams_are_the_same_in_another_process():
    code = (
        "from torch_srelu.lab.config.run import Run\n"
        "from torch_srelu.lab.runtime.seeds import derive\n"
        f"print(Run(**{BASE!r}).key(), derive(7, 'order', 3))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [make().key(), str(derive(7, "order", 3))]


def test_a_run_knows_names_and_imports_no_networks():
    code = (
        "import sys\n"
        "import torch_srelu.lab.config.run, torch_srelu.lab.records.run_record\n"
        "print([name for name in sys.modules if name.startswith('torch_srelu.lab.models')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert make(net="mine", activation="ours", options={"p": 2}).to_dict()["options"] == {"p": 2}


def test_every_decision_changes_the_key():
    changed = {
        "dataset": {"dataset": "mnist", "net": "nin-mnist"},
        "net": {"dataset": "mnist", "net": "nin-mnist"},
        "activation": {"activation": "relu"},
        "options": {"options": {"a_l": 0.3}},
        "schedule": {"schedule": "cosine"},
        "milestones": {"schedule": "multistep", "milestones": (0.5,)},
        "scope": {"scope": "layer"},
        "fixed": {"fixed": ("a_r",)},
        "preprocessing": {"preprocessing": "gcn"},
        "augmentation": {"augmentation": "flips"},
        "precision": {"precision": "bf16"},
        "deterministic": {"deterministic": True},
        "world": {"world": 2},
        "freeze": {"freeze": 1},
        "quantile": {"quantile": 0.8},
        "momentum": {"momentum": 0.5},
        "validation": {"validation": 0.2},
        "ema": {"ema": 0.99},
        "weight_decay": {"weight_decay": 1e-4},
        "start": {"start": "0123456789"},
    }
    for field in dataclasses.fields(Run):
        if field.name == "optimizer":  # has one choice
            continue
        value = getattr(make(), field.name)
        change = changed.get(field.name) or {field.name: value * 2}
        assert make(**change).key() != make().key(), field.name


def test_equivalent_values_give_equal_runs():
    assert make(lr=1).key() == make(lr=1.0).key()
    assert make(fixed=("a_r", "t_r")).key() == make(fixed=["t_r", "a_r", "t_r"]).key()
    falls = {"schedule": "multistep"}
    assert make(**falls, milestones=[1]).key() == make(**falls, milestones=(1.0,)).key()
    two = {"activation": "apl", "options": {"hinges": 2}}
    assert make(**two).options == {"hinges": 2}
    assert make(fixed=["t_r"]) == make(fixed=("t_r",))
    two = {"t_r": 2.0, "a_l": 0.1}
    turned = dict(reversed(two.items()))
    assert make(activation="srelu-manual", options=two) == make(
        activation="srelu-manual", options=turned
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "cifar"}, "did you mean 'cifar10'"),
        ({"schedule": "cos"}, "Choose one of constant, multistep, cosine, poly"),
        ({"precision": "fp8"}, "float32, bf16"),
        ({"epochs": 0}, "at least 1"),
        ({"seed": -1}, "at least 0"),
        ({"lr": -0.1}, "lr must be in"),
        ({"lr": float("nan")}, "lr must be in"),
        ({"momentum": 1.0}, r"\[0, 1\)"),
        ({"validation": 1.0}, r"\[0, 1\)"),
        ({"quantile": 0.0}, r"\(0, 1\]"),
        ({"freeze": 4}, "shorter freeze or more epochs"),
        ({"freeze": 9}, "shorter freeze or more epochs"),
        ({"fixed": ("t",)}, "t_r, a_r, t_l, a_l"),
        ({"schedule": "multistep"}, "needs at least one milestone"),
        ({"milestones": (0.5,)}, "needs no milestone"),
        ({"schedule": "multistep", "milestones": (0.9, 0.5)}, "rising shares"),
        ({"schedule": "multistep", "milestones": (50,)}, "rising shares"),
        ({"world": 33}, "more than the 32 images of a batch"),
        ({"world": 3}, "multiple of 3"),
    ],
)
def test_impossible_decisions_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


@pytest.mark.parametrize(
    "changes", [{"epochs": 2.0}, {"lr": "0.1"}, {"seed": True}, {"deterministic": 1}, {"net": None}]
)
def test_wrong_types_are_refused(changes):
    with pytest.raises(TypeError, match=f"{next(iter(changes))} must be of type"):
        make(**changes)


def test_a_run_of_another_version_is_refused():
    with pytest.raises(ValueError, match="unknown field of a run 'epoch': did you mean 'epochs'"):
        Run.from_dict(BASE | {"epoch": 3})
