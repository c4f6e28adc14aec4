"""Faded timm and torchvision models compute what faded forwards written here by hand compute (shortcuts/by_hand.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from by_hand import Alphas, Reference, check_against_reference, replace_forwards
from torch import Tensor, nn


def timm_model(name: str, **options: Any) -> nn.Module:
    import timm

    return timm.create_model(name, **options)


def torchvision_model(name: str, **options: Any) -> nn.Module:
    import torchvision

    return torchvision.models.get_model(name, weights=None, **options)


def faded_vit(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor, *_: Any, **__: Any) -> Tensor:
        x = next(alpha) * x + self.ls1(self.attn(self.norm1(x)))
        return next(alpha) * x + self.ls2(self.mlp(self.norm2(x)))

    replace_forwards(model, "Block", forward)


def faded_beit(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor, shared_rel_pos_bias: Tensor | None = None) -> Tensor:
        gains = (1.0, 1.0) if self.gamma_1 is None else (self.gamma_1, self.gamma_2)
        x = next(alpha) * x + gains[0] * self.attn(self.norm1(x), shared_rel_pos_bias=shared_rel_pos_bias)
        return next(alpha) * x + gains[1] * self.mlp(self.norm2(x))

    replace_forwards(model, "Block", forward)


def faded_convnext(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = self.mlp(self.norm(self.conv_dw(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        return next(alpha) * x + self.gamma[:, None, None] * y

    replace_forwards(model, "ConvNeXtBlock", forward)


def faded_resnet(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu((next(alpha) * x if self.downsample is None else self.downsample(x)) + y)

    replace_forwards(model, "BasicBlock", forward)


def faded_swin(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        x = next(alpha) * x + self._attn(self.norm1(x))
        return next(alpha) * x + self.mlp(self.norm2(x))

    replace_forwards(model, "SwinTransformerBlock", forward)


def faded_torchvision_vit(model: nn.Module, alpha: Alphas) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = next(alpha) * x + self.self_attention(y, y, y, need_weights=False)[0]
        return next(alpha) * x + self.mlp(self.ln_2(x))

    replace_forwards(model, "EncoderBlock", forward)


SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 4, "num_classes": 7}
STAGES = {"depths": (1, 2, 1, 1), "dims": (8, 8, 16, 16), "num_classes": 7}

# name, maker, reference, image size, shortcuts that fade
CASES: list[tuple[str, Callable[[], nn.Module], Reference, int, int]] = [
    ("timm vit", lambda: timm_model("vit_tiny_patch16_224", **SMALL), faded_vit, 32, 6),
    ("timm deit3", lambda: timm_model("deit3_small_patch16_224", **SMALL), faded_vit, 32, 6),
    ("timm beit", lambda: timm_model("beit_base_patch16_224", **SMALL), faded_beit, 32, 6),
    ("timm convnext", lambda: timm_model("convnext_tiny", **STAGES), faded_convnext, 64, 5),
    ("timm resnet", lambda: timm_model("resnet18", num_classes=7), faded_resnet, 64, 5),
    (
        "timm swin",
        lambda: timm_model(
            "swin_tiny_patch4_window7_224", img_size=32, patch_size=2, window_size=4, embed_dim=16, depths=(2, 2),
            num_heads=(2, 4), num_classes=7,
        ),
        faded_swin,
        32,
        8,
    ),
    (
        "torchvision vit_b_16",
        lambda: torchvision_model("vit_b_16", image_size=32, num_classes=7),
        faded_torchvision_vit,
        32,
        24,
    ),
    ("torchvision resnet18", lambda: torchvision_model("resnet18", num_classes=7), faded_resnet, 64, 5),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "reference", "size", "count"), CASES, ids=[case[0] for case in CASES])
def test_a_faded_model_equals_a_forward_written_by_hand(
    name: str, make: Callable[[], nn.Module], reference: Reference, size: int, count: int
) -> None:
    check_against_reference(name, lambda: (make(), torch.randn(2, 3, size, size)), reference, count)
