"""Small folders of transformers' vision transformers, made from a config with random weights. Not a test itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from echoless.models import sincos_positions

transformers.utils.logging.disable_progress_bar()

SIDE, PATCH, WIDTH, DEPTH = 32, 8, 48, 3
SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "image_size": SIDE,
    "patch_size": PATCH,
}
HIDDEN = {"intermediate_size": 96}
# Name -> class, config class, and what its config has besides the sizes.
BODIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dinov2": ("Dinov2Model", "Dinov2Config", {"mlp_ratio": 2}),
    "dinov2-registers": ("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", {"num_register_tokens": 3}),
    "dinov2-gated": ("Dinov2Model", "Dinov2Config", {"use_swiglu_ffn": True}),
    "dinov3": ("DINOv3ViTModel", "DINOv3ViTConfig", {**HIDDEN, "num_register_tokens": 4}),
    "dinov3-gated": ("DINOv3ViTModel", "DINOv3ViTConfig", {**HIDDEN, "use_gated_mlp": True, "hidden_act": "silu"}),
    "vit": ("ViTModel", "ViTConfig", HIDDEN),
    "vitmae": (
        "ViTMAEForPreTraining",
        "ViTMAEConfig",
        {
            "intermediate_size": 4 * WIDTH,
            "decoder_hidden_size": 32,
            "decoder_num_hidden_layers": 2,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 128,
        },
    ),
    "ijepa": ("IJepaModel", "IJepaConfig", HIDDEN),
    "deit": ("DeiTModel", "DeiTConfig", HIDDEN),
    "beit": ("BeitModel", "BeitConfig", {**HIDDEN, "use_relative_position_bias": True}),
    "beit-shared": ("BeitModel", "BeitConfig", {**HIDDEN, "use_shared_relative_position_bias": True}),
    "beit-absolute": ("BeitModel", "BeitConfig", {**HIDDEN, "use_absolute_position_embeddings": True}),
}


def make_folder(folder: Path, name: str, **settings: Any) -> Path:
    """Every weight is shaken, so that every part matters. The fixed tables of ViTMAE are as in published files."""
    model, config, own = BODIES[name]
    made = getattr(transformers, model)(getattr(transformers, config)(**SIZES | own | settings))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
            else:
                parameter[0, 1:].copy_(sincos_positions((SIDE // PATCH,) * 2, parameter.shape[-1]))
    made.save_pretrained(folder)
    processor = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.25, 0.3]}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def states_of(folder: Path, images: Tensor) -> list[Tensor]:
    """Embeddings, every block's output, and what transformers gives as the last hidden state."""
    config = transformers.AutoConfig.from_pretrained(folder)
    extra: dict[str, Any] = {}
    if config.model_type == "vit_mae":  # all patches, in their order
        config.mask_ratio = 0.0
        grid = [side // config.patch_size for side in images.shape[-2:]]
        extra["noise"] = torch.arange(grid[0] * grid[1]).float().expand(len(images), -1)
    if config.model_type in ("vit", "vit_mae", "ijepa", "deit"):  # the others do it unasked
        extra["interpolate_pos_encoding"] = True
    verbosity = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()  # of heads and decoders that AutoModel leaves out
    model = transformers.AutoModel.from_pretrained(folder, config=config).eval()
    transformers.utils.logging.set_verbosity(verbosity)
    with torch.no_grad():
        output = model(images, output_hidden_states=True, **extra)
    return [*output.hidden_states, output.last_hidden_state]


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest, relative to the largest value that was expected."""
    return float((found - expected).abs().max() / expected.abs().max())
