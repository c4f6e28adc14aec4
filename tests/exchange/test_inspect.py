"""`echoless inspect` finds the shortcuts of models it is given by folder, without weights and without an example."""

from __future__ import annotations

import json
import sys

import diffusers
import pytest
import torch
import transformers

from echoless.cli.main import main
from echoless.config import ResNetConfig, ShortcutConfig, ViTConfig, to_dict
from echoless.errors import ConfigError
from echoless.exchange import inspect_model
from echoless.exchange.examples import diffusers_examples, first_that_runs
from echoless.models import ResNet, ViT
from echoless.runs import save_weights
from echoless.shortcuts import fade

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
VISION = {**SMALL, "image_size": 32, "patch_size": 8}
TEXT = {**SMALL, "vocab_size": 60}
ENDS = {"bos_token_id": 0, "eos_token_id": 0}

# config and the number of its residual additions, counted by hand
TRANSFORMERS = {
    "vit": (lambda: transformers.ViTConfig(**VISION), 4),
    "vit_mae": (lambda: transformers.ViTMAEConfig(**VISION), 4),
    "bert": (lambda: transformers.BertConfig(**TEXT), 4),
    "gpt2": (lambda: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=60, **ENDS), 4),
    "t5": (lambda: transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=2, vocab_size=60), 10),
    "clip": (
        lambda: transformers.CLIPConfig(text_config={**TEXT, "eos_token_id": 59}, vision_config=VISION),
        8,
    ),
}
DIFFUSERS = {
    "dit": (
        lambda: diffusers.DiTTransformer2DModel(
            num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8,
            patch_size=2, num_embeds_ada_norm=10,
        ),
        4,
    ),
    "unet": (
        lambda: diffusers.UNet2DConditionModel(
            sample_size=16, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
            cross_attention_dim=12, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        ),
        None,
    ),
    "sd3": (
        lambda: diffusers.SD3Transformer2DModel(
            sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8,
            num_attention_heads=2, joint_attention_dim=12, caption_projection_dim=16, pooled_projection_dim=10,
            pos_embed_max_size=8,
        ),
        6,
    ),
    "flux": (
        lambda: diffusers.FluxTransformer2DModel(
            patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
            num_attention_heads=2, joint_attention_dim=12, pooled_projection_dim=10, axes_dims_rope=(4, 4, 8),
        ),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformers_config_is_enough(name, tmp_path):
    make, count = TRANSFORMERS[name]
    make().save_pretrained(tmp_path)
    report = inspect_model(tmp_path, alpha_min=0.6)
    assert len(report.shortcuts) == count and report.alphas[0] == 1.0 and report.alphas[-1] == 0.6
    assert len(inspect_model(tmp_path / "config.json").shortcuts) == count


@pytest.mark.parametrize("name", DIFFUSERS)
def test_a_diffusers_folder_is_enough(name, tmp_path):
    make, count = DIFFUSERS[name]
    make().save_config(tmp_path / "transformer")
    (tmp_path / "model_index.json").write_text("{}")
    report = inspect_model(tmp_path)
    assert len(report.shortcuts) == (count or len(report.shortcuts)) and report.shortcuts


def test_a_run_shows_the_alphas_it_was_trained_with(tmp_path):
    config = ViTConfig(
        image_size=(8, 8), patch_size=4, width=16, heads=2, depth=2, shortcuts=ShortcutConfig(alpha_min=0.4)
    )
    vit = ViT(config, torch.Generator().manual_seed(0))
    save_weights(tmp_path / "encoder", vit.state_dict(), {"model": to_dict(config)}, vit.shortcut_record)
    report = inspect_model(tmp_path)
    with pytest.raises(
        ConfigError, match=r"alpha_min is 0\.7, but .* has the alphas it was trained with; leave it out"
    ):
        inspect_model(tmp_path, alpha_min=0.7)
    assert report.alphas == pytest.approx([1.0, 0.8, 0.6, 0.4])
    lines = [line.split() for line in str(report).splitlines()[4:]]
    assert lines == [
        ["block00/+attn", "5", "x", "16", "1.0000", "1"],
        ["block00/+mlp", "5", "x", "16", "0.8000", "0.8"],
        ["block01/+attn", "5", "x", "16", "0.6000", "0.48"],
        ["block01/+mlp", "5", "x", "16", "0.4000", "0.192"],
    ], "four patches and the class token"


def test_the_layers_of_a_convolutional_network_have_the_sizes_of_its_features(tmp_path):
    config = ResNetConfig(image_size=(32, 32), width=4, stem="cifar")
    net = ResNet(config, torch.Generator().manual_seed(0))
    save_weights(
        tmp_path / "encoder", net.state_dict(), {"kind": "resnet", "model": to_dict(config)}, net.shortcut_record
    )
    with torch.no_grad():
        seen = net.eval().features(torch.zeros(1, 3, 32, 32))
    layers = inspect_model(tmp_path).layers
    assert [(layer.tokens, layer.width) for layer in layers] == [tuple(seen[layer.name].shape[1:]) for layer in layers]
    assert [(layer.tokens, layer.width) for layer in layers[::2]] == [(1024, 4), (256, 8), (64, 16), (16, 32)]


def test_the_verb_prints_the_table_and_limits_it(tmp_path, capsys):
    TRANSFORMERS["vit"][0]().save_pretrained(tmp_path)
    assert main(["inspect", str(tmp_path), "--alpha-min", "0.7", "--within", "layers.1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("ViTModel: 2 shortcuts would be faded, 3 additions left alone."), "nothing was faded"
    assert "layers.1" in printed and "outside within=" in printed and "0.7000" in printed


@pytest.mark.parametrize("library", ["transformers", "transformers, with a head", "diffusers"])
def test_a_model_that_was_saved_faded_shows_the_alphas_that_it_was_saved_with(library, tmp_path):
    """Of a folder saved with alpha_min 0.7, the alphas that `fade` would choose by itself were shown, down to 0.5."""
    if library == "diffusers":
        model = DIFFUSERS["dit"][0]()
        example = first_that_runs(model, diffusers_examples(model))
    else:
        config = transformers.ViTConfig(**VISION)
        kind = transformers.ViTForImageClassification if "head" in library else transformers.ViTModel
        model, example = kind(config), torch.randn(2, 3, 32, 32)
    faded = fade(model, 0.7, example=example)
    model.save_pretrained(tmp_path)
    report = inspect_model(tmp_path)
    assert report.alphas == faded.alphas and report.shortcuts == faded.shortcuts
    first = str(report).splitlines()[0]
    assert first == (
        f"{type(model).__name__}: 4 shortcuts faded. It was faded before it was saved; these are its alphas, as they "
        f"were found in {tmp_path}."
    )
    with pytest.raises(
        ConfigError, match=r"^alpha_min is 0\.6, but .* has the alphas it was saved with; leave it out$"
    ):
        inspect_model(tmp_path, alpha_min=0.6)


def test_a_damaged_record_of_alphas_is_refused(tmp_path):
    """It was taken for a model that is not faded, and other alphas were shown as proposed."""
    model = transformers.ViTModel(transformers.ViTConfig(**VISION))
    fade(model, 0.3, example=torch.randn(2, 3, 32, 32))
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"alpha"', '"alhpa"', 1))
    with pytest.raises(ConfigError, match=r"^its alphas are damaged: .*config\.json is not a file written by"):
        inspect_model(tmp_path)


def test_of_a_model_that_is_not_faded_it_says_what_would_be(tmp_path):
    """It said "4 shortcuts faded"; weights that were not downloaded are no obstacle."""
    TRANSFORMERS["vit"][0]().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1")
    assert str(inspect_model(tmp_path)).startswith("ViTModel: 4 shortcuts would be faded, 1 addition left alone. ")


def test_what_cannot_be_inspected_is_one_sentence(tmp_path, monkeypatch, capsys):
    for library in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, library, None)
    for name, reason in {
        "vit_tiny_patch16_224": "needs the extra timm (pip install 'echoless[timm]'",
        "timm:vit_tiny_patch16_224": "needs the extra timm (pip install 'echoless[timm]'",
        "torchvision:resnet18": "needs torchvision",
        "some/where": "does not exist here",
        str(tmp_path): f"{tmp_path} holds no config.json; allowed: a transformers or diffusers folder",
    }.items():
        assert main(["inspect", name]) == 2
        error = capsys.readouterr().err
        assert reason in error and error.count("\n") == 1, name
    (tmp_path / "config.json").write_text(json.dumps({"_class_name": "os"}))
    with pytest.raises(ConfigError, match="allowed: a model of diffusers"):
        inspect_model(tmp_path)


def test_a_model_too_large_for_memory_is_refused_before_it_is_built(tmp_path):
    config = {**SMALL, "hidden_size": 65536, "intermediate_size": 262144, "num_hidden_layers": 100}
    transformers.BertConfig(**config, vocab_size=60).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="billion parameters; allowed: 2"):
        inspect_model(tmp_path)
