"""Other models of transformers and diffusers are faded as a new user would try it, and what libraries do still works.

How many shortcuts each has is known from its architecture: two per transformer block, three with cross-attention.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import echoless
from echoless.shortcuts import fade, fade_saved, fold, unfade
from echoless.shortcuts.travel import BUFFER

transformers = pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers")
transformers.logging.set_verbosity_error()

SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {**SMALL, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
VISION = {**SMALL, "image_size": 32, "patch_size": 8}
AUDIO = {
    **TEXT, "conv_dim": (8, 8), "conv_stride": (2, 2), "conv_kernel": (4, 4), "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}  # fmt: skip


def ids() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(1, 50, (2, 7))}


def both_ids() -> dict[str, Tensor]:
    return {**ids(), "decoder_input_ids": torch.randint(1, 50, (2, 5))}


def images() -> Tensor:
    return torch.randn(2, 3, 32, 32)


T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 50}
MAE = {
    **VISION, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 2, "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 32,
}  # fmt: skip
SEGFORMER = {
    "num_encoder_blocks": 2, "depths": [2, 2], "sr_ratios": [2, 1], "hidden_sizes": [8, 16], "patch_sizes": [7, 3],
    "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
}  # fmt: skip


def model_of(name: str, options: dict[str, Any]) -> nn.Module:
    """transformers' model `name` from its configuration."""
    family = name.removesuffix("ForPreTraining").removesuffix("Model").removesuffix("Encoder")
    return getattr(transformers, name)(getattr(transformers, family + "Config")(**options))


CASES: list[tuple[str, dict[str, Any], Callable[[], Any], int]] = [
    ("T5EncoderModel", T5, ids, 4),
    ("T5Model", T5, both_ids, 10),
    ("LlamaModel", TEXT, ids, 6),
    ("Wav2Vec2Model", AUDIO, lambda: torch.randn(2, 400), 6),  # its convolutional position embedding is none
    ("SegformerModel", SEGFORMER, images, 8),
    ("ViTMAEForPreTraining", MAE, images, 10),
    ("BloomModel", {"hidden_size": 32, "n_layer": 3, "n_head": 4, "vocab_size": 50}, ids, 6),  # in a plain function
    ("GPTNeoXModel", TEXT, ids, 3),  # attention and MLP in parallel share one shortcut
    ("FNetModel", {key: value for key, value in TEXT.items() if key != "num_attention_heads"}, ids, 6),
    ("DebertaV2Model", {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, ids, 6),
]


@pytest.mark.parametrize(("name", "options", "example", "count"), CASES, ids=[case[0] for case in CASES])
def test_models_never_seen_before_are_faded(
    name: str, options: dict[str, Any], example: Callable[[], Any], count: int
) -> None:
    torch.manual_seed(0)
    model, inputs = model_of(name, options), example()
    report = fade(model, 0.6, example=inputs)
    assert len(report.shortcuts) == count
    unfade(model)


def test_shared_layers_are_refused_unless_all_alphas_are_equal() -> None:
    model = model_of("AlbertModel", {**TEXT, "embedding_size": 16})
    with pytest.raises(ValueError, match="runs in 3 calls of one module"):
        fade(model, 0.6, example=ids())
    assert len(fade(model, 0.6, example=ids(), schedule="constant").shortcuts) == 6


def test_gradient_checkpointing_of_transformers_gives_the_same_gradients() -> None:
    torch.manual_seed(0)
    model, x = model_of("ViTModel", {**VISION, "hidden_dropout_prob": 0.0}).double().train(), images().double()
    model.gradient_checkpointing_enable()
    fade(model, 0.6, example=x)
    model(x)[0].square().sum().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    model.gradient_checkpointing_disable()
    model(x)[0].square().sum().backward()
    assert found
    for name, parameter in model.named_parameters():
        if name in found:
            torch.testing.assert_close(found[name], parameter.grad)


def test_a_faded_model_is_saved_and_loaded_by_its_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`from_pretrained` knows nothing of fading: it reports the alphas as unexpected; `fade_saved` restores them."""
    model, x = model_of("ViTModel", VISION).eval(), images()
    plain = model(x)[0]
    fade(model, 0.6, example=x)
    model.save_pretrained(tmp_path)
    again, loading = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert type(again).__name__ == "ViTModel"
    assert set(loading["unexpected_keys"]) == {BUFFER}
    assert torch.equal(again.eval()(x)[0], plain)
    fade_saved(again, tmp_path, example=x)
    assert torch.equal(again(x)[0], model(x)[0])
    assert torch.equal(echoless.load(tmp_path).features(x)["hidden03"], hidden(model, x)), "evaluate and embed as well"
    assert "was faded before it was saved: its alphas were found and are used (alpha from 1 to 0.6)" in (
        capsys.readouterr().err
    )
    unfade(again)
    assert "faded_shortcuts" not in again.config.to_dict()


def dit() -> tuple[Any, dict[str, Tensor]]:
    """A DiT of diffusers whose gates and last layer, which start at zero, are open, and an example of its input."""
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=4, sample_size=8, patch_size=2,
        num_embeds_ada_norm=10, norm_num_groups=4,
    )  # fmt: skip
    inputs = {"timestep": torch.tensor([3, 700]), "class_labels": torch.tensor([1, 2])}
    return shaken(model), {"hidden_states": torch.randn(2, 4, 8, 8), **inputs}


@pytest.mark.parametrize("shard", ["10GB", "20KB"])
def test_a_faded_model_saved_by_diffusers_is_restored_from_its_folder_in_one_file_or_several(
    tmp_path: Path, shard: str
) -> None:
    """The config of diffusers has no record of the alphas; the weights do."""
    torch.manual_seed(0)
    model, example = dit()
    report = fade(model, 0.6, example=example)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert (len(files) > 1) == (shard == "20KB")
    (holder,) = [file for file in files if BUFFER.encode() in file.read_bytes()]
    for saved in (tmp_path, str(tmp_path), holder):
        again = type(model).from_pretrained(tmp_path)
        assert fade_saved(again, saved, example=example).alphas == report.alphas
        assert torch.equal(again(**example).sample, model(**example).sample)


def test_a_folder_or_file_without_alphas_is_refused_in_a_sentence(tmp_path: Path) -> None:
    model, example = dit()
    model.save_pretrained(tmp_path / "PLAIN")
    with pytest.raises(ValueError, match=r"PLAIN has no alphas of fade, .*; give a folder that save_pretrained wrote"):
        fade_saved(model, tmp_path / "PLAIN", example=example)
    with pytest.raises(ValueError, match=r"model\.safetensors has 0 entries"):
        fade_saved(model, tmp_path / "PLAIN" / "diffusion_pytorch_model.safetensors", example=example)
    (tmp_path / "weights.bin").write_bytes(b"\xff\xfe pickled")
    with pytest.raises(ValueError, match=r"weights\.bin has no alphas of fade; allowed: a folder"):
        fade_saved(model, tmp_path / "weights.bin", example=example)
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(ValueError, match=r"cut\.safetensors is not a safetensors file"):
        fade_saved(model, tmp_path / "cut.safetensors", example=example)
    with pytest.raises(ValueError, match=r"NOWHERE cannot be read: No such file"):
        fade_saved(model, tmp_path / "NOWHERE", example=example)


@torch.no_grad()
def hidden(model: Any, x: Any) -> Tensor:
    return model(x, output_hidden_states=True).hidden_states[-1]


PRE_NORM = [("ViTModel", VISION, images()), ("GPT2Model", TEXT, ids()), ("LlamaModel", TEXT, ids())]  # RMSNorm by hand
POST_NORM = [("BertModel", TEXT, ids()), ("Wav2Vec2Model", AUDIO, torch.randn(2, 400))]


def shaken(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


@torch.no_grad()
def fold_error(model: Any, example: Any) -> float:
    """Of the folded model, run by its library's own code, in single precision and relative to the output."""
    folded = fold(model, example=example)
    assert BUFFER not in folded.state_dict()
    given, expected = (net(**example)[0] if isinstance(example, dict) else net(example)[0] for net in (folded, model))
    return ((given - expected).norm() / expected.norm()).item()


def name_or_kind(item: Any) -> str:
    """The same in every process of the tests, where the numbers of an example are not."""
    return item if isinstance(item, str) else type(item).__name__


@pytest.mark.parametrize("within", [None, "*[0-1]*"])
@pytest.mark.parametrize(("name", "options", "example"), [*PRE_NORM, *POST_NORM], ids=name_or_kind)
def test_faded_transformers_fold_into_their_own_class_pre_norm_or_post_norm_whole_or_in_part(
    name: str, options: dict[str, Any], example: Any, within: str | None
) -> None:
    torch.manual_seed(0)
    model = shaken(model_of(name, options))
    fade(model, 0.5, example=example, within=within)
    assert type(fold(model, example=example)) is getattr(transformers, name)
    assert fold_error(model, example) < 1e-6


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha_min", [0.1, 0.6, 0.9])
def test_a_faded_dit_folds_exactly_whatever_its_weights(seed: int, alpha_min: float) -> None:
    """Its norms have no weights of their own, so that their eps were not scaled, and a threshold decided."""
    torch.manual_seed(seed)
    model, example = dit()
    fade(model, alpha_min, example=example)
    error = fold_error(model, example)
    print(f"fold of a DiT, seed {seed}, alpha_min {alpha_min}: relative error {error:.1e}")
    assert error < 1e-6


class Stack(nn.Module):
    """Pre-norm blocks without a norm at the end: `head` or the output reads the stream itself."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        self.branches = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(3))
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        for norm, branch in zip(self.norms, self.branches):
            x = x + branch(norm(x))
        return self.head(x)


class FixedNorm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (8,), eps=1.0)


@pytest.mark.parametrize(("head", "obstacle"), [
    (nn.Linear(8, 4), "its stream is read by linear in head, without a norm"),
    (nn.Identity(), "its output contains the stream itself, without a norm"),
    (FixedNorm(), "its stream is read by layer_norm in head, a norm whose eps cannot be scaled"),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_cannot_be_folded_is_refused_with_the_place_that_reads_the_stream(
    head: nn.Module, obstacle: str, dtype: torch.dtype
) -> None:
    """The precision of the model does not decide: a small difference is one in bfloat16, too."""
    torch.manual_seed(0)
    model, x = Stack(copy.deepcopy(head)).to(dtype), torch.randn(2, 5, 8, dtype=dtype)
    fade(model, 0.99, example=x)
    with pytest.raises(ValueError, match=f"^Stack cannot be folded: {obstacle}, so that a plain network would be"):
        fold(model, example=x)
    with pytest.raises(ValueError, match="example is missing"):
        fold(model)


def unet() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = diffusers.UNet2DModel(
        sample_size=16, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return model.eval(), (torch.randn(2, 3, 16, 16), torch.tensor([1, 2]))


def test_an_attention_processor_shared_by_many_modules_gets_each_its_own_alpha() -> None:
    model, example = unet()
    apart = copy.deepcopy(model)
    shared = diffusers.models.attention_processor.AttnProcessor2_0()
    attentions = [module for module in model.modules() if type(module).__name__ == "Attention"]
    for attention in attentions:
        attention.set_processor(shared)
    for each in (model, apart):
        fade(each, 0.6, example=example)
    assert torch.equal(model(*example).sample, apart(*example).sample)
    unfade(model)
    assert len(attentions) > 2
    assert all(attention.processor is shared for attention in attentions)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["vit", "unet"])
def test_faded_library_models_compile_as_one_graph(which: str) -> None:
    torch._dynamo.reset()
    model, example = (model_of("ViTModel", VISION).eval(), (images(),)) if which == "vit" else unet()
    fade(model, 0.6, example=example)
    with torch.no_grad():
        out = torch.compile(model, fullgraph=True, backend="aot_eager")(*example)[0]
        torch.testing.assert_close(out, model(*example)[0], rtol=1e-5, atol=1e-5)
