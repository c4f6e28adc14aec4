"""The residual-free initialisation is what the paper states, to rounding, in our blocks and in those of others.

The matrices are checked against numpy's SVD and condition number, the attention against torch's softmax written out.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import echoless
from echoless.config import ShortcutConfig, ViTConfig
from echoless.models import ViT
from echoless.models.layers import Block
from echoless.shortcuts import NoShortcut, find_blocks, init_skipless_, query_key_pair, uniform_orthogonal

transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 192}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def skipless_vit(width: int = 96, heads: int = 3, depth: int = 2) -> ViT:
    config = ViTConfig(
        image_size=(32, 32),
        patch_size=8,
        width=width,
        depth=depth,
        heads=heads,
        zero_init=False,
        shortcuts=ShortcutConfig(variant="none"),
    )
    return ViT(config, seeded())


def matrices(vit: ViT, block: int = 0) -> dict[str, np.ndarray]:
    """W_Q, W_K, W_V, W_O, fc1 and fc2 for row vectors, read from the parameters by hand."""
    attention, mlp = vit.blocks[block].attn, vit.blocks[block].mlp
    query, key, value = attention.qkv.weight.detach().double().numpy().T.reshape(vit.config.width, 3, -1).swapaxes(0, 1)
    output, fc1, fc2 = (layer.weight.detach().double().numpy().T for layer in (attention.proj, mlp.fc1, mlp.fc2))
    return {"query": query, "key": key, "value": value, "output": output, "fc1": fc1, "fc2": fc2}


def test_values_times_output_are_nine_times_an_orthogonal_matrix_over_all_heads():
    vit = skipless_vit(width=192)
    init_skipless_(vit, generator=seeded(1))
    parts = matrices(vit)
    product = parts["value"] @ parts["output"]
    condition = np.linalg.cond(product)
    print(f"W_V W_O, width 192: condition number 1 + {condition - 1:.1e}")
    assert condition - 1 < 1e-5
    np.testing.assert_allclose(product @ product.T, 81 * np.eye(192), atol=1e-3)
    for name in ("value", "output"):
        np.testing.assert_allclose(parts[name] @ parts[name].T, 9 * np.eye(192), atol=1e-4)


def test_queries_times_keys_are_the_truncated_svd_of_alpha_z_plus_beta_i():
    """numpy's SVD of the very matrix that was drawn, cut after head_dim values, the square root split evenly."""
    width, heads, head_dim = 96, 3, 32
    queries, keys = query_key_pair(width, heads, 2.0, 0.6, seeded(2))
    drawn = seeded(2)
    for head in range(heads):
        Z = torch.randn(width, width, dtype=torch.float64, generator=drawn).numpy() / math.sqrt(width)
        U, S, Vh = np.linalg.svd(2.0 * Z + 0.6 * np.eye(width))
        expected = (U[:, :head_dim] * S[:head_dim]) @ Vh[:head_dim]
        W_Q, W_K = queries[head].numpy(), keys[head].numpy()
        error = np.abs(W_Q @ W_K.T - expected).max()
        assert error < 1e-12
        np.testing.assert_allclose(W_Q.T @ W_Q, W_K.T @ W_K, atol=1e-12)  # both are S_k: the root is split evenly
    print(f"W_Q W_K^T against numpy's truncated SVD, width {width}, head_dim {head_dim}: largest error {error:.1e}")


def test_the_weights_of_the_model_are_those_pairs():
    vit = skipless_vit()
    init_skipless_(vit, alpha=1.8, beta=1.0, c=3.0, generator=seeded(3))
    generator = seeded(3)
    torch.randn(96, 96, dtype=torch.float64, generator=generator)  # that of the values and the output
    queries, keys = query_key_pair(96, 3, 1.8, 1.0, generator)
    parts = matrices(vit)
    for head in range(3):
        columns = slice(32 * head, 32 * head + 32)
        np.testing.assert_allclose(parts["query"][:, columns], queries[head].numpy(), atol=1e-6)
        np.testing.assert_allclose(parts["key"][:, columns], keys[head].numpy(), atol=1e-6)


@pytest.mark.parametrize(("inputs", "outputs", "gain"), [(24, 96, 2.0), (96, 24, 1.0), (40, 40, 1.0)])
def test_mlp_weights_are_orthogonal_and_longer_only_where_the_layer_widens(inputs, outputs, gain):
    matrix = uniform_orthogonal(inputs, outputs, seeded()).double().numpy()
    small = min(inputs, outputs)
    gram = matrix @ matrix.T if inputs < outputs else matrix.T @ matrix
    np.testing.assert_allclose(gram, gain**2 * np.eye(small), atol=1e-5)


def test_biases_are_zero_norms_are_kept_and_everything_else_is_left_alone():
    vit = skipless_vit()
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.add_(0.5)
    before = {name: tensor.clone() for name, tensor in vit.state_dict().items()}
    assert init_skipless_(vit, generator=seeded()) == ("blocks.0", "blocks.1")
    for name, tensor in vit.state_dict().items():
        if name.startswith("blocks") and "norm" not in name:
            assert not torch.equal(tensor, before[name])
            assert name.endswith("weight") or not tensor.any()
        else:
            assert torch.equal(tensor, before[name])


def test_one_generator_gives_one_model_and_the_global_one_is_not_touched():
    state = torch.get_rng_state()
    first, second = skipless_vit(), skipless_vit()
    init_skipless_(first, generator=seeded(5))
    init_skipless_(second, generator=seeded(5))
    for a, b in zip(first.parameters(), second.parameters()):
        assert torch.equal(a, b)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("width", "heads", "alpha", "beta", "published"),
    [pytest.param(768, 12, 2.0, 0.6, 0.78, marks=pytest.mark.slow), (384, 6, 1.8, 1.0, 0.99)],
)
def test_attention_of_uncorrelated_tokens_is_as_diagonal_as_computed_elsewhere(width, heads, alpha, beta, published):
    """197 Gaussian tokens after a LayerNorm; softmax(q k^T / sqrt(head_dim)) written out."""
    block = Block(width, heads, 1.0, 1e-6, (NoShortcut(), NoShortcut()))
    init_skipless_(block, alpha, beta, generator=seeded(7))
    tokens = torch.randn(4, 197, width, generator=seeded(8))
    with torch.no_grad():
        qkv = block.attn.qkv(block.norm1(tokens)).view(4, 197, 3, heads, -1)
        logits = torch.einsum("bihd,bjhd->bhij", qkv[:, :, 0], qkv[:, :, 1]) / math.sqrt(width // heads)
    measured = logits.softmax(dim=-1).diagonal(dim1=-2, dim2=-1).mean().item()
    print(f"d {width}, alpha {alpha}, beta {beta}: mean diagonal attention {measured:.3f}, expected {published}")
    assert abs(measured - published) < 0.03
    assert abs(echoless.attention_diagonality(block, tokens)[""] - measured) < 1e-5


def hugging_face(kind: str, **changes: object) -> nn.Module:
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **changes})
    return getattr(transformers, f"{kind}Model")(config).eval()


FOREIGN = {
    "ViT": lambda: hugging_face("ViT", image_size=32, patch_size=8),
    "Dinov2": lambda: hugging_face("Dinov2", image_size=28, patch_size=14, drop_path_rate=0.2, layerscale_value=1e-5),
    "Beit": lambda: hugging_face("Beit", image_size=32, patch_size=8, drop_path_rate=0.2),
    "CLIPVision": lambda: hugging_face("CLIPVision", image_size=32, patch_size=8),
    "GPT2": lambda: transformers.GPT2Model(
        transformers.GPT2Config(n_embd=48, n_layer=2, n_head=3, vocab_size=64, bos_token_id=0, eos_token_id=0)
    ),
    "torch": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(48, 3, 192, norm_first=True, batch_first=True), 2, enable_nested_tensor=False
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_pre_norm_transformers_are_found_by_structure(name):
    model = FOREIGN[name]()
    assert len(init_skipless_(model, generator=seeded())) == 2
    for block in find_blocks(model):
        attention = block.attention
        product = (attention.value.matrix @ attention.output.matrix).detach().double().numpy()
        assert np.linalg.cond(product) - 1 < 1e-5 and attention.heads == 3
        query, key = attention.query.matrix[:, :16], attention.key.matrix[:, :16]
        torch.testing.assert_close(query.T @ query, key.T @ key, atol=1e-4, rtol=0)
        assert [tuple(layer.matrix.shape) for layer in block.mlp] == [(48, 192), (192, 48)]
        assert all(scale.eq(1).all() for scale in block.scales)
        assert bool(block.scales) == (name in ("Dinov2", "Beit"))
    drop_paths = [module for module in model.modules() if type(module).__name__.endswith("DropPath")]
    assert all(module.drop_prob == 0.0 for module in drop_paths)
    assert bool(drop_paths) == (name in ("Dinov2", "Beit"))


@torch.no_grad()
def test_what_a_foreign_attention_computes_is_what_its_matrices_say():
    """With one token attention is the identity: the branch of transformers' own ViT is x W_V W_O."""
    model = FOREIGN["ViT"]()
    init_skipless_(model, generator=seeded())
    layer, block = model.layers[0], find_blocks(model)[0]
    token = torch.randn(1, 1, 48, generator=seeded(1))
    out = layer.attention(token)
    out = out[0] if isinstance(out, tuple) else out
    expected = token @ block.attention.value.matrix @ block.attention.output.matrix
    torch.testing.assert_close(out, expected)
    assert torch.allclose(out.norm(), 9 * token.norm())


class FusedBlock(nn.Module):
    """A block in the manner of timm, with a width and heads that its author got wrong where asked."""

    def __init__(self, heads: int = 3) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(48), nn.LayerNorm(48)
        self.attn = nn.Module()
        self.attn.num_heads = heads
        self.attn.qkv, self.attn.proj = nn.Linear(48, 144), nn.Linear(48, 48)
        self.attn.forward = lambda x: self.attn.proj(self.attn.qkv(x)[..., :48])
        self.mlp = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def stemmed() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.Conv2d(16, 48, 4, stride=4), FusedBlock())


def bart() -> nn.Module:
    config = transformers.BartConfig(d_model=48, encoder_layers=1, decoder_layers=1, encoder_attention_heads=3)
    return transformers.BartModel(config).encoder


REFUSED = {
    "post-norm BERT": (
        lambda: hugging_face("Bert", vocab_size=64),
        "runs attention, norm, MLP, norm; it must be a pre-norm block",
    ),
    "post-norm BART": (bart, "runs attention, norm, MLP, norm; it must be a pre-norm block"),
    "post-norm torch": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(48, 3, batch_first=True), 1, enable_nested_tensor=False
        ),
        "runs attention, norm, MLP, norm; it must be a pre-norm block",
    ),
    "attention-free": (
        lambda: transformers.ConvNextModel(transformers.ConvNextConfig(hidden_sizes=[8] * 4, depths=[1] * 4)),
        "ConvNextModel has no attention",
    ),
    "ResNet": (
        lambda: transformers.ResNetModel(transformers.ResNetConfig(hidden_sizes=[8] * 4, depths=[1] * 4)),
        "ResNetModel has no attention",
    ),
    "heads": (lambda: FusedBlock(heads=5), "attn: it has 5 heads; allowed: a divisor of its width 48"),
    "stem": (stemmed, "has the convolution 0; its only one must be a patch embedding"),
    "grouped keys": (
        lambda: hugging_face("Llama", num_key_value_heads=1, vocab_size=64),
        "its key is 48 x 16; allowed: 48 x 48",
    ),
    "rotary": (
        lambda: hugging_face("Llama", num_key_value_heads=3, vocab_size=64),
        "cannot be run on its tokens alone",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_models_are_refused_in_one_sentence_and_left_untouched(name):
    build, sentence = REFUSED[name]
    model = build()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    with pytest.raises(ValueError, match=sentence):
        init_skipless_(model, generator=seeded())
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_an_example_lets_blocks_run_that_need_more_than_their_tokens():
    model = hugging_face("Llama", num_key_value_heads=3, vocab_size=64)
    names = init_skipless_(model, generator=seeded(), example={"input_ids": torch.arange(4)[None]})
    assert names == ("layers.0", "layers.1")


@pytest.mark.parametrize(
    ("name", "value"), [("alpha", -1.0), ("alpha", math.nan), ("beta", math.inf), ("c", 0.0), ("c", "3")]
)
def test_bad_numbers_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is .*; allowed: a finite number"):
        init_skipless_(skipless_vit(), **{name: value})
