"""Random streams: independent, reproducible, the same for one process and for many."""

import pytest
import torch

from torch_srelu.lab.models.network_registry import network_spec
from torch_srelu.lab.runtime.seeds import STREAMS, Dropout, DropoutStream, derive, generator

CPU = torch.device("cpu")


def test_streams_seeds_and_positions_all_differ():
    numbers = {derive(s, name, p) for s in range(5) for name in STREAMS for p in range(5)}
    assert len(numbers) == 5 * len(STREAMS) * 5


def test_an_unknown_stream_is_refused():
    with pytest.raises(ValueError, match="choose one of weights"):
        generator(0, "colour")


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_processes_that_share_a_batch_use_the_masks_of_one(layout):
    x = torch.ones(8, 6, 4, 4).contiguous(memory_format=layout)
    whole = DropoutStream(5, CPU)
    whole.seek(11)
    expected = whole.fill(torch.empty_like(x), 0.5)
    parts = []
    for rank in range(4):
        stream = DropoutStream(5, CPU, rank, world=4)
        stream.seek(11)
        parts.append(stream.fill(torch.empty_like(x[2 * rank :][:2]), 0.5))
    assert torch.equal(torch.cat(parts), expected)
    whole.seek(12)
    assert not torch.equal(whole.fill(torch.empty_like(x), 0.5), expected)


def test_dropout_keeps_the_mean_and_rests_in_eval_mode():
    stream = DropoutStream(0, CPU)
    stream.seek(0)
    layer, x = Dropout(0.25, stream), torch.ones(200, 500)
    y = layer(x)
    assert set(y.unique().tolist()) == {0.0, x.new_tensor(1 / 0.75).item()}
    assert y.mean().item() == pytest.approx(1, abs=0.02)
    assert layer.eval()(x) is x


def test_dropout_without_a_stream_cannot_train():
    with pytest.raises(RuntimeError, match=r"call net.eval\(\)"):
        Dropout(0.5)(torch.ones(2))


def test_torch_s_own_random_state_is_left_alone():
    before = torch.random.get_rng_state()
    stream = DropoutStream(0, CPU)
    stream.seek(0)
    stream.fill(torch.empty(10), 0.5)
    network_spec("nin-digits").build("apl", seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)
