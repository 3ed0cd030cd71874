"""hidden_act="srelu"."""

import pytest
import torch
from torch import nn

import torch_srelu as ts

transformers = pytest.importorskip("transformers")

import torch_srelu.integrations.transformers  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 40}
SPECIAL = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
NAMED = {"activation_function": "srelu"}
MODELS = {
    "BertForMaskedLM": (
        "BertConfig",
        {**SIZE, "intermediate_size": 48, "hidden_act": "srelu"},
        {48, 32},
    ),
    "GPT2LMHeadModel": (
        "GPT2Config",
        {**SIZE, **SPECIAL, "n_inner": 48, **NAMED},
        {48},
    ),
    "LlamaForCausalLM": (
        "LlamaConfig",
        {**SIZE, "intermediate_size": 48, "num_key_value_heads": 2, "hidden_act": "srelu"},
        {48},
    ),
    "OPTForCausalLM": (
        "OPTConfig",
        {**SIZE, **SPECIAL, "ffn_dim": 48, "word_embed_proj_dim": 32, **NAMED},
        {48},
    ),
    "MixtralForCausalLM": (  # experts: weights in stacks, and tokens sent by their values
        "MixtralConfig",
        {**SIZE, "intermediate_size": 48, "num_key_value_heads": 2, "hidden_act": "srelu"}
        | {"num_local_experts": 4},
        {48},
    ),
    "FalconForCausalLM": (  # multiplies by weight.T, which is no parameter
        "FalconConfig",
        {**SIZE, **SPECIAL, "ffn_hidden_size": 48, "activation": "srelu"},
        {48},
    ),
}  # fmt: skip


def build(name):
    torch.manual_seed(0)
    config, options, widths = MODELS[name]
    return getattr(transformers, name)(getattr(transformers, config)(**options)), widths


def units(model):
    return [m for m in model.modules() if isinstance(m, ts.SReLU)]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_saved_before_its_first_forward_loaded_and_trains(name, tmp_path):
    model, widths = build(name)
    assert {unit.num_channels for unit in units(model)} == widths
    assert all(unit.dim == -1 and type(unit.t_r) is nn.Parameter for unit in units(model))
    with torch.no_grad():
        for unit in units(model):
            unit.a_l.uniform_()  # something that only the file can know
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    tokens = torch.randint(1, 40, (4, 12))
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, loaded(tokens).logits)
    saved, read = model.state_dict(), loaded.state_dict()
    assert list(saved) == list(read)
    assert all(torch.equal(saved[key], read[key]) for key in saved)

    groups = ts.param_groups(loaded, lr=1e-2)
    optimizer = torch.optim.Adam(groups)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = loaded(tokens, labels=tokens).loss
        loss.backward()
        assert all(p.grad is not None for unit in units(loaded) for p in unit.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_a_layer_that_must_be_given_a_mask_has_its_size_when_built():
    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=48,
        decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=40, vocab_size=40,
        pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=0, **NAMED,
    )  # fmt: skip
    sized = units(transformers.WhisperModel(config))
    assert {(unit.num_channels, unit.dim) for unit in sized} == {(48, -1), (40, -1)}


RESNET = {
    "hidden_act": "srelu", "layer_type": "basic",
    "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
}  # fmt: skip
WAV2VEC2 = {
    "hidden_act": "srelu", "feat_extract_activation": "srelu",
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "conv_dim": [12, 12], "conv_kernel": [5, 3], "conv_stride": [4, 2],
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "shape", "layouts"),
    [
        ("ResNet", RESNET, (2, 3, 64, 64), {(8, 1), (16, 1)}),
        ("Wav2Vec2", WAV2VEC2, (2, 400), {(12, 1), (16, 1), (24, -1)}),
        (  # transposes for a LayerNorm, and back
            "Wav2Vec2",
            {**WAV2VEC2, "feat_extract_norm": "layer"},
            (2, 400),
            {(12, 1), (16, 1), (24, -1)},
        ),
    ],
)
def test_units_behind_convolutions_have_their_channels_in_dimension_1(
    name, options, shape, layouts, tmp_path
):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**options)
    model = getattr(transformers, f"{name}Model")(config).eval()
    assert {(unit.num_channels, unit.dim) for unit in units(model)} == layouts
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    x = torch.randn(shape)
    out = loaded(x).last_hidden_state
    assert torch.equal(out, model(x).last_hidden_state)
    out.sum().backward()
    assert all(p.grad is not None for unit in units(loaded) for p in unit.parameters())


def test_a_checkpoint_with_another_activation_gets_the_papers_start(tmp_path):
    config = transformers.BertConfig(**SIZE, intermediate_size=48)
    transformers.BertModel(config).save_pretrained(tmp_path)
    model = transformers.BertModel.from_pretrained(tmp_path, hidden_act="srelu")
    for unit in units(model):
        for name, p in unit.named_parameters():
            assert torch.equal(p, torch.full_like(p, unit.initial[name]))


def test_a_version_that_does_not_flag_initialized_modules_is_warned_of(monkeypatch):
    monkeypatch.setattr(transformers.PreTrainedModel, "_initialize_weights", lambda *_: None)
    with pytest.warns(UserWarning, match=r"reset_parameters\(\) of every SReLU"):
        torch_srelu.integrations.transformers._check_transformers()
