"""Layers come from the input of the network to its output, in old records too."""

import json

import pytest
from specimens import PROTOCOL, specimen

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.config.run import Run
from torch_srelu.lab.models import network_registry
from torch_srelu.lab.models.activation_registry import activation
from torch_srelu.lab.records import run_record
from torch_srelu.lab.records.record_format import RecordError, default_order
from torch_srelu.lab.training.loop import train


@pytest.mark.parametrize("net", network_registry.NETWORKS)
def test_networks_of_old_records_have_their_order(net):
    plan = network_registry.NETWORKS[net]
    for act in ("srelu", "relu", "maxout"):
        if plan.incompatibility(activation(act)) is None:
            names = [name for name, _ in plan.build(act).activations()]
            order = default_order(net) or sorted(names)
            assert [name for name in order if name in names] == names


def test_a_record_names_its_layers_in_order(tmp_path):
    run = Run(**PROTOCOL | {"net": "mine"}, activation="relu", seed=1, epochs=1)
    folder = run_record.create(tmp_path, run, {}).folder
    assert run_record.load(folder).in_order(["b", "a"]) == ["a", "b"]
    run_record.write_run(folder, run, {}, None, ["b", "a"])
    record = run_record.load(folder)
    assert record.layers == ("b", "a")
    assert record.in_order(["a", "c", "b"]) == ["b", "a", "c"]


def test_a_record_without_the_order_has_that_of_its_network(tmp_path):
    folder = specimen(tmp_path, "srelu", 1).folder
    plain = json.loads((folder / "run.json").read_text())
    del plain["layers"]
    (folder / "run.json").write_text(json.dumps(plain))
    record = run_record.load(folder)
    assert record.in_order(["cccp1", "unknown", "conv1"]) == ["conv1", "cccp1", "unknown"]


def test_impossible_layers_are_damage(tmp_path):
    folder = run_record.create(tmp_path, recipe("digits", "relu", seed=1), {}).folder
    plain = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(plain | {"layers": [1]}))
    with pytest.raises(RecordError, match=r"run.json is damaged \(its layers are \[1\]\)"):
        run_record.load(folder)


def test_training_stores_the_order(tmp_path):
    record = train(recipe("digits", "relu", seed=1, epochs=1), tmp_path, device="cpu")
    assert json.loads((record.folder / "run.json").read_text())["layers"] == [*record.layers]
    assert record.layers == ("conv1", "cccp1", "conv2", "cccp2", "conv3", "cccp3")
