"""A diffusion transformer started from another one's weights computes the same function under its own shortcuts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from echoless.config import DiffusionConfig, ShortcutConfig, SiTConfig, UViTConfig, to_dict
from echoless.errors import AlphaMismatch, RunError
from echoless.models import SiT, UViT
from echoless.runs import save_weights
from echoless.training import warm_start

SMALL = {"image_size": (8, 8), "channels": 3, "width": 32, "heads": 4, "classes": 5}
CONFIGS = {"uvit": (UViT, UViTConfig(**SMALL, depth=6)), "sit": (SiT, SiTConfig(**SMALL, depth=6))}


def model_of(kind: str, alpha_min: float, awake: bool = True, **options) -> UViT | SiT:
    network, config = CONFIGS[kind]
    model = network(
        replace(config, shortcuts=ShortcutConfig(alpha_min=alpha_min), **options), torch.Generator().manual_seed(0)
    )
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters() if awake else ():
        start = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        torch.nn.init.normal_(parameter, start, 0.2, generator=generator)
    return model.eval()


def written(folder: Path, model: UViT | SiT) -> Path:
    config = {"kind": model.config.kind, "model": to_dict(model.config), "objective": to_dict(DiffusionConfig())}
    save_weights(folder, model.state_dict(), config, model.shortcut_record)
    return folder


@torch.no_grad()
def outputs(model: UViT | SiT, labels: Tensor | None = None) -> Tensor:
    images = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    return model(images, torch.tensor([0.0, 300.0, 900.0]), labels)


@pytest.mark.parametrize("kind", ["uvit", "sit"])
@pytest.mark.parametrize(("before", "after"), [(1.0, 0.7), (0.7, 1.0), (0.6, 0.8)])
def test_the_function_is_unchanged_under_other_alphas(kind, before, after, tmp_path):
    old, new = model_of(kind, before), model_of(kind, after, awake=False)
    said = warm_start(new, written(tmp_path / "old", old))
    assert f"rescaled from alpha_min {before:g} to {after:g}, the function is unchanged" in said
    labels = torch.tensor([4, 0, 2])
    expected, found = outputs(old, labels), outputs(new, labels)
    error = float((found - expected).abs().max() / expected.abs().max())
    print(f"{kind} alpha_min {before} -> {after}: relative difference {error:.1e}")
    assert error < 2e-4
    assert new.shortcut_record["alphas"][-1] == after


def test_the_published_sit_gains_long_skips_that_start_at_zero(tmp_path):
    old, new = model_of("sit", 1.0, long_skips=False), model_of("sit", 0.8, awake=False)
    assert "its new long skips start at zero" in warm_start(new, written(tmp_path / "old", old))
    torch.testing.assert_close(outputs(new), outputs(old), rtol=1e-3, atol=1e-3 * float(outputs(old).abs().max()))
    with pytest.raises(RunError, match="long_skips is True there and False here"):
        warm_start(model_of("sit", 1.0, long_skips=False), written(tmp_path / "new", new))


def test_other_classes_start_anew_and_everything_else_is_kept(tmp_path):
    old, new = model_of("uvit", 1.0), model_of("uvit", 1.0, awake=False, classes=7)
    fresh = new.label_table.clone()
    assert "labels start anew (5 there, 7 here)" in warm_start(new, written(tmp_path / "old", old))
    assert torch.equal(new.label_table, fresh)
    assert torch.equal(new.blocks[0].attn.qkv.weight, old.blocks[0].attn.qkv.weight)


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    folder = written(tmp_path / "old", model_of("uvit", 1.0))
    with pytest.raises(
        RunError,
        match="of kind 'uvit', which evaluate, embed and sample take; allowed for --init of this run: sit",
    ):
        warm_start(model_of("sit", 1.0), folder)
    with pytest.raises(RunError, match="depth is 6 there and 4 here"):
        warm_start(model_of("uvit", 1.0, depth=4), folder)
    with pytest.raises(RunError, match="extra_tokens is 2 there and 1 here"):
        warm_start(model_of("uvit", 1.0, classes=None), folder)
    other = model_of("uvit", 0.7)
    lie = {"kind": "uvit", "model": to_dict(model_of("uvit", 1.0).config)}
    save_weights(tmp_path / "lies", other.state_dict(), lie, other.shortcut_record)
    with pytest.raises(AlphaMismatch):
        warm_start(model_of("uvit", 0.7), tmp_path / "lies")
