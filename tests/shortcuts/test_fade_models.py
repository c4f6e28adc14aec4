"""Faded models of transformers and diffusers compute what faded forwards written here by hand compute (by_hand.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from by_hand import Alphas, Reference, check_against_reference, replace_forwards
from torch import Tensor, nn

transformers = pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers")
transformers.logging.set_verbosity_error()

SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
VISION = {**SMALL, "image_size": 32, "patch_size": 8}


def images(size: int = 32, channels: int = 3) -> Tensor:
    return torch.randn(2, channels, size, size)


def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(0, 50, (2, 7))}


# --- transformers ---


def vit() -> tuple[nn.Module, Any]:
    return transformers.ViTModel(transformers.ViTConfig(**VISION)), images()


def faded_vit(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor, *_: Any, **__: Any) -> Tensor:
        x = next(alpha) * x + self.attention(self.layernorm_before(x))[0]
        return next(alpha) * x + self.mlp(self.layernorm_after(x))

    replace_forwards(model, "ViTLayer", forward)


def dinov2() -> tuple[nn.Module, Any]:
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, image_size=32, patch_size=8
    )
    return transformers.Dinov2Model(config), images()


def faded_dinov2(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor, *_: Any, **__: Any) -> Tensor:
        x = next(alpha) * x + self.layer_scale1.lambda1 * self.attention(self.norm1(x))[0]
        return next(alpha) * x + self.layer_scale2.lambda1 * self.mlp(self.norm2(x))

    replace_forwards(model, "Dinov2Layer", forward)


def clip() -> tuple[nn.Module, Any]:
    return transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**VISION)), images()


def faded_clip(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor, attention_mask: Any = None, **_: Any) -> Tensor:
        x = next(alpha) * x + self.self_attn(self.layer_norm1(x), attention_mask=attention_mask)[0]
        return next(alpha) * x + self.mlp(self.layer_norm2(x))

    replace_forwards(model, "CLIPEncoderLayer", forward)


def bert() -> tuple[nn.Module, Any]:
    return transformers.BertModel(transformers.BertConfig(**SMALL, vocab_size=50)), tokens()


def faded_bert(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, hidden: Tensor, x: Tensor) -> Tensor:
        return self.LayerNorm(next(alpha) * x + self.dense(hidden))

    replace_forwards(model, "BertSelfOutput", forward)
    replace_forwards(model, "BertOutput", forward)


def gpt2() -> tuple[nn.Module, Any]:
    config = transformers.GPT2Config(n_embd=32, n_layer=3, n_head=4, vocab_size=50, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2Model(config), tokens()


def faded_gpt2(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor, past: Any, attention_mask: Any, *_: Any, **__: Any) -> Tensor:
        x = next(alpha) * x + self.attn(self.ln_1(x), attention_mask=attention_mask)[0]
        return next(alpha) * x + self.mlp(self.ln_2(x))

    replace_forwards(model, "GPT2Block", forward)


def swin() -> tuple[nn.Module, Any]:
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return transformers.SwinModel(config), images()


def faded_swin(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor, size: tuple[int, int], *_: Any, **__: Any) -> tuple[Tensor, None]:
        (height, width), (batch, _, channels), w = size, x.shape, self.window_size
        shift = self.shift_size
        mask = self.get_attn_mask(height, width, dtype=x.dtype, device=x.device)
        grid = self.layernorm_before(x).view(batch, height, width, channels).roll((-shift, -shift), (1, 2))
        windows = grid.unflatten(2, (width // w, w)).unflatten(1, (height // w, w)).transpose(2, 3)
        attended = self.attention(windows.reshape(-1, w * w, channels), mask)[0]
        grid = attended.view(batch, height // w, width // w, w, w, channels).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        x = next(alpha) * x + grid.roll((shift, shift), (1, 2)).flatten(1, 2)
        return next(alpha) * x + self.mlp(self.layernorm_after(x)), None

    replace_forwards(model, "SwinLayer", forward)


def convnext() -> tuple[nn.Module, Any]:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16], depths=[2, 2], num_stages=2)
    return transformers.ConvNextModel(config), images()


def faded_convnext(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = self.pwconv1(self.layernorm(self.dwconv(x).permute(0, 2, 3, 1)))
        y = self.layer_scale_parameter * self.pwconv2(self.act(y))
        return next(alpha) * x + y.permute(0, 3, 1, 2)

    replace_forwards(model, "ConvNextLayer", forward)


def resnet() -> tuple[nn.Module, Any]:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[3, 3], layer_type="basic", hidden_act="relu"
    )
    return transformers.ResNetModel(config), images()


def faded_resnet(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        stream = next(alpha) * x if isinstance(self.shortcut, nn.Identity) else self.shortcut(x)
        return torch.relu(stream + self.layer(x))

    replace_forwards(model, "ResNetBasicLayer", forward)


# --- diffusers ---


def dit() -> tuple[nn.Module, Any]:
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=3, sample_size=8,
        patch_size=2, num_embeds_ada_norm=10,
    )  # fmt: skip
    classes, timestep = torch.tensor([0, 1]), torch.tensor([1, 2])
    return model, {"hidden_states": images(8, 4), "timestep": timestep, "class_labels": classes}


def faded_dit(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor, *, timestep: Tensor, class_labels: Tensor, **_: Any) -> Tensor:
        y, gate, shift, scale, gate_mlp = self.norm1(x, timestep, class_labels, hidden_dtype=x.dtype)
        x = next(alpha) * x + gate[:, None] * self.attn1(y)
        y = self.norm3(x) * (1 + scale[:, None]) + shift[:, None]
        return next(alpha) * x + gate_mlp[:, None] * self.ff(y)

    replace_forwards(model, "BasicTransformerBlock", forward)


def pixart() -> tuple[nn.Module, Any]:
    model = diffusers.PixArtTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=3, sample_size=8,
        patch_size=2, cross_attention_dim=16, caption_channels=12, use_additional_conditions=False,
    )  # fmt: skip
    example = {
        "hidden_states": images(8, 4),
        "encoder_hidden_states": torch.randn(2, 5, 12),
        "timestep": torch.tensor([1, 2]),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }
    return model, example


def faded_pixart(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor, *, encoder_hidden_states: Tensor, timestep: Tensor, **_: Any) -> Tensor:
        modulation = self.scale_shift_table[None] + timestep.reshape(len(x), 6, -1)
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = modulation.chunk(6, dim=1)
        x = next(alpha) * x + gate * self.attn1(self.norm1(x) * (1 + scale) + shift)
        x = next(alpha) * x + self.attn2(x, encoder_hidden_states=encoder_hidden_states)
        return next(alpha) * x + gate_mlp * self.ff(self.norm2(x) * (1 + scale_mlp) + shift_mlp)

    replace_forwards(model, "BasicTransformerBlock", forward)


def unet() -> tuple[nn.Module, Any]:
    model = diffusers.UNet2DModel(
        sample_size=16, block_out_channels=(8, 16), layers_per_block=2, norm_num_groups=4, attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return model, (images(16), torch.tensor([1, 2]))


def faded_unet(model: nn.Module, alpha: Alphas) -> None:
    silu = nn.functional.silu

    def block(self: Any, x: Tensor, temb: Tensor) -> Tensor:
        y = self.conv1(silu(self.norm1(x))) + self.time_emb_proj(silu(temb))[:, :, None, None]
        y = self.conv2(silu(self.norm2(y)))
        return (self.conv_shortcut(x) if self.conv_shortcut is not None else next(alpha) * x) + y

    def attention(self: Any, x: Tensor, **_: Any) -> Tensor:
        y = self.group_norm(x.flatten(2)).transpose(1, 2)
        heads = [to(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for to in (self.to_q, self.to_k, self.to_v)]
        weights = (heads[0] @ heads[1].mT / math.sqrt(heads[0].shape[-1])).softmax(-1)
        y = self.to_out[0]((weights @ heads[2]).transpose(1, 2).flatten(2))
        return next(alpha) * x + y.transpose(1, 2).reshape(x.shape)

    replace_forwards(model, "ResnetBlock2D", block)
    replace_forwards(model, "Attention", attention)


def sd3() -> tuple[nn.Module, Any]:
    model = diffusers.SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=3, attention_head_dim=8,
        num_attention_heads=2, joint_attention_dim=12, caption_projection_dim=16, pooled_projection_dim=10,
        pos_embed_max_size=8, dual_attention_layers=(0,),
    )  # fmt: skip
    example = {
        "hidden_states": images(8, 4),
        "encoder_hidden_states": torch.randn(2, 5, 12),
        "pooled_projections": torch.randn(2, 10),
        "timestep": torch.tensor([1, 2]),
    }
    return model, example


def faded_sd3(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, hidden_states: Tensor, encoder_hidden_states: Tensor, temb: Tensor, **_: Any) -> Any:
        x, c = hidden_states, encoder_hidden_states
        y, gate, shift, scale, gate_mlp, *second = self.norm1(x, emb=temb)
        if self.context_pre_only:
            attended, _ = self.attn(hidden_states=y, encoder_hidden_states=self.norm1_context(c, temb))
        else:
            z, c_gate, c_shift, c_scale, c_gate_mlp = self.norm1_context(c, emb=temb)
            attended, c_attended = self.attn(hidden_states=y, encoder_hidden_states=z)
        x = next(alpha) * x + gate[:, None] * attended
        if second:
            x = x + second[1][:, None] * self.attn2(hidden_states=second[0])  # a second branch of the same shortcut
        x = next(alpha) * x + gate_mlp[:, None] * self.ff(self.norm2(x) * (1 + scale[:, None]) + shift[:, None])
        if self.context_pre_only:
            return None, x
        c = next(alpha) * c + c_gate[:, None] * c_attended
        z = self.norm2_context(c) * (1 + c_scale[:, None]) + c_shift[:, None]
        return next(alpha) * c + c_gate_mlp[:, None] * self.ff_context(z), x

    replace_forwards(model, "JointTransformerBlock", forward)


# name, maker, reference, shortcuts that fade
CASES: list[tuple[str, Callable[[], tuple[nn.Module, Any]], Reference, int]] = [
    ("transformers ViT", vit, faded_vit, 6),
    ("transformers DINOv2", dinov2, faded_dinov2, 6),
    ("transformers CLIP vision", clip, faded_clip, 6),
    ("transformers BERT", bert, faded_bert, 6),
    ("transformers GPT-2", gpt2, faded_gpt2, 6),
    ("transformers Swin", swin, faded_swin, 8),
    ("transformers ConvNeXt", convnext, faded_convnext, 4),
    ("transformers ResNet", resnet, faded_resnet, 4),
    ("diffusers DiT", dit, faded_dit, 6),
    ("diffusers PixArt", pixart, faded_pixart, 9),
    ("diffusers UNet2D", unet, faded_unet, 11),
    ("diffusers SD3Transformer2D", sd3, faded_sd3, 10),
]


@pytest.mark.parametrize(("name", "make", "reference", "count"), CASES, ids=[case[0] for case in CASES])
def test_a_faded_model_equals_a_forward_written_by_hand(
    name: str, make: Callable[[], tuple[nn.Module, Any]], reference: Reference, count: int
) -> None:
    check_against_reference(name, make, reference, count)
