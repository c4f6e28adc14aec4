"""An encoder exported to timm, loaded by timm in a process that cannot import echoless, gives our features."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cards import KINDS, cosine_with_ours, make_run

from echoless.config import ShortcutConfig, ViTConfig, to_dict
from echoless.exchange import export_encoder, inspect_model
from echoless.models import ViT
from echoless.runs import save_weights

FADED = ViTConfig(
    image_size=(32, 32),
    patch_size=8,
    width=48,
    depth=12,
    heads=3,
    zero_init=False,
    shortcuts=ShortcutConfig(alpha_min=0.6),
)
CASES = {
    "faded": FADED,
    "wide-5-channels": replace(FADED, image_size=(16, 40), channels=5, mlp_ratio=3.0),
    "normed": replace(FADED, final_norm=True, channels=1),
    "plain": replace(FADED, shortcuts=ShortcutConfig(alpha_min=1.0)),
}

WITHOUT_US = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "echoless":
            raise ModuleNotFoundError("this process knows no echoless")
sys.meta_path.insert(0, Blocker())
import numpy, torch
try:
    import torchvision
except Exception:
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(operator + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
import timm
for folder in sys.argv[1:]:
    images = torch.from_numpy(numpy.load(folder + "/images.npy"))
    model = timm.create_model("local-dir:" + folder, pretrained=True).eval()
    with torch.no_grad():
        [(patches, prefix)] = model.forward_intermediates(
            images, indices=1, return_prefix_tokens=True, norm=False, output_fmt="NLC", intermediates_only=True)
        tokens = torch.cat([prefix, patches], 1)
        numpy.savez(folder + "/answer.npz", tokens=tokens, output=model(images))
    config = timm.data.resolve_model_data_config(model)
    assert tuple(config["input_size"]) == tuple(images.shape[1:]), config
"""


def trained(config: ViTConfig) -> ViT:
    generator = torch.Generator().manual_seed(0)
    vit = ViT(config, generator)
    with torch.no_grad():
        for name, parameter in vit.named_parameters():
            if name != "cls_token":
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.03)
    return vit.eval()


def test_timm_gives_our_features_without_our_code(tmp_path: Path) -> None:
    encoders, reports = {}, {}
    for name, config in CASES.items():
        vit = encoders[name] = trained(config)
        described = {"kind": "vit", "model": to_dict(config), "mean": [0.4] * config.channels}
        save_weights(tmp_path / "encoder", vit.state_dict(), described, vit.shortcut_record)
        reports[name] = export_encoder(tmp_path / "encoder", "timm", tmp_path / name)
        images = torch.randn(3, config.channels, *config.image_size, generator=torch.Generator().manual_seed(5))
        np.save(tmp_path / name / "images.npy", images.numpy())
    folders = [str(tmp_path / name) for name in CASES]
    done = subprocess.run([sys.executable, "-c", WITHOUT_US, *folders], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name, vit in encoders.items():
        with np.load(tmp_path / name / "answer.npz") as answer:
            tokens, output = (torch.from_numpy(answer[key]) for key in ("tokens", "output"))
        images = torch.from_numpy(np.load(tmp_path / name / "images.npy"))
        features, report = vit.features(images), reports[name]
        ours = features[features.last_block]
        scale = float(report.settings["scale of the tokens"])
        errors = {"tokens": relative_error(tokens / scale, ours)}
        if vit.config.final_norm:
            errors["output"] = relative_error(output, vit(images).detach().mean(dim=1))
        else:
            errors["output"] = relative_error(output, features.pool())
        print(
            f"export timm {name}: scale={scale:g} reported={report.error:.1e} other_process={max(errors.values()):.1e}"
        )
        assert report.verified and report.error < 1e-4 and max(errors.values()) < 1e-4
        assert (scale == 1.0) == (name == "plain")


@pytest.mark.parametrize("kind", KINDS)
def test_the_snippet_of_a_card_runs_and_gives_our_feature(kind: str, tmp_path: Path) -> None:
    """Of an encoder with a final norm it called `torch.cat` without an import; of 16-bit images it kept 255 levels."""
    run = make_run(tmp_path / "run", kind)
    export_encoder(run, "timm", tmp_path / "timm")
    assert cosine_with_ours(run, tmp_path / "timm", kind) > 0.998


def test_timm_and_torchvision_models_are_inspected_by_name() -> None:
    faded = inspect_model("timm:vit_tiny_patch16_224", alpha_min=0.6)
    assert len(faded.shortcuts) == 24 and faded.alphas[-1] == 0.6
    assert len(inspect_model("resnet18").shortcuts) == 5
    assert len(inspect_model("torchvision:resnet18").shortcuts) == 5


def relative_error(value: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((value - expected).norm(dim=-1) / expected.norm(dim=-1)).max())
