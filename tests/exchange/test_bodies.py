"""Bodies of other projects are held exactly: every layer's tokens equal those of transformers, at any image size, and
the exported folder gives them again. What cannot be held is refused by a sentence that names it.

    pytest tests/exchange/test_bodies.py -s
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from bodies import BODIES, DEPTH, SIDE, SIZES, WIDTH, difference, make_folder, noise, states_of
from safetensors.torch import load_file, save_file

from echoless.config import ShortcutConfig, ViTConfig
from echoless.errors import ConfigError, EcholessError
from echoless.exchange import export_encoder, import_checkpoint
from echoless.models import ViT
from echoless.runs.open import load_body
from echoless.shortcuts import alphas, fold, unfold

EXACT = 1e-5


@pytest.fixture(scope="module", params=BODIES)
def body(request, tmp_path_factory):
    """Name, folder of transformers, and the folder that `import` made of it."""
    folder = make_folder(tmp_path_factory.mktemp("theirs") / request.param, request.param)
    ours = tmp_path_factory.mktemp("ours") / request.param
    import_checkpoint(folder, ours)
    return request.param, folder, ours


def our_states(ours: Path, images: torch.Tensor) -> list[torch.Tensor]:
    features = load_body(ours).model.features(images)
    last = "norm" if "norm" in features else features.last_block
    return [features[name] for name in ("embed", *features.block_outputs, last)]


def compare(name: str, what: str, found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Prints and returns the largest relative difference of every layer."""
    assert len(found) == len(expected) == DEPTH + 2
    differences = [difference(*pair) for pair in zip(found, expected)]
    print(f"{name:17} {what:24} " + " ".join(f"{each:.1e}" for each in differences))
    return max(differences)


def test_every_layer_of_an_imported_body_equals_transformers(body):
    name, folder, ours = body
    images = noise(2, 3, SIDE, SIDE)
    assert compare(name, "import", our_states(ours, images), states_of(folder, images)) < EXACT


@pytest.mark.parametrize("size", [(48, 48), (16, 16), (24, 56)], ids=["larger", "smaller", "oblong"])
def test_positions_at_another_size_are_interpolated_as_transformers_does(body, size):
    """Also to fewer patches, where DINOv2 with registers smooths and the others do not."""
    name, folder, ours = body
    images = noise(2, 3, *size)
    assert compare(name, f"at {size[0]} x {size[1]}", our_states(ours, images), states_of(folder, images)) < EXACT


def test_the_exported_folder_gives_the_same_layers_again(body, tmp_path):
    name, folder, ours = body
    report = export_encoder(ours, "hf", tmp_path / "again", tolerance=EXACT)
    assert report.verified
    images = noise(2, 3, SIDE, SIDE)
    found, expected = states_of(tmp_path / "again", images), states_of(folder, images)
    if name == "beit-absolute":  # comes back as a DINOv2, whose last hidden state is always normalised
        found[-1], expected[-1] = found[-2], expected[-2]
    assert compare(name, f"export as {report.settings['class']}", found, expected) < EXACT
    same_class = json.loads((folder / "config.json").read_text())["architectures"][0] == report.settings["class"]
    assert same_class or name in ("vitmae", "beit-absolute")
    written, original = (json.loads((path / "config.json").read_text()) for path in (tmp_path / "again", folder))
    assert {key: written[key] for key in (*SIZES, "layer_norm_eps")} == {
        key: original[key] for key in (*SIZES, "layer_norm_eps")
    }


def test_a_folder_that_was_exported_is_imported_again(body, tmp_path):
    _, _, ours = body
    export_encoder(ours, "hf", tmp_path / "again")
    import_checkpoint(tmp_path / "again", tmp_path / "ours")
    first, second = (load_body(path).model.state_dict() for path in (ours, tmp_path / "ours"))
    assert all(torch.equal(first[name], second[name]) for name in first.keys() & second.keys())


def test_the_normalisation_of_its_images_comes_along(body):
    trained = load_body(body[2])
    assert (trained.mean, trained.std) == ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))


def test_a_foreign_body_fades_and_folds_without_a_change_of_its_function(body):
    """Layer scale, gates and registers are inside the branches and the embeddings, so the identity holds."""
    name, _, ours = body
    plain = load_body(ours).model
    faded = unfold(plain, alphas(DEPTH, alpha_min=0.6))
    images = noise(2, 3, SIDE, SIDE)
    tokens = [model.features(images) for model in (plain, faded, fold(faded))]
    for other in tokens[1:]:
        assert difference(other[other.last_block], tokens[0][tokens[0].last_block]) < EXACT, name
    assert faded.shortcut_record["variant"] == "faded"


def test_faded_bodies_are_exported_folded(tmp_path):
    from echoless.config import to_dict
    from echoless.runs import save_weights

    import_checkpoint(make_folder(tmp_path / "theirs", "dinov3"), tmp_path / "ours")
    trained = load_body(tmp_path / "ours")
    config = replace(trained.config, shortcuts=ShortcutConfig(alpha_min=0.7))
    faded = ViT(config)
    faded.load_state_dict(trained.model.state_dict())
    described = {"kind": "vit", "model": to_dict(config)}
    save_weights(tmp_path / "faded", faded.state_dict(), described, faded.shortcut_record)
    report = export_encoder(tmp_path / "faded", "hf", tmp_path / "plain")
    images = noise(2, 3, SIDE, SIDE)
    features = faded.features(images)
    assert report.settings["class"] == "DINOv3ViTModel"
    assert difference(states_of(tmp_path / "plain", images)[-2], features[features.last_block]) < 1e-4


@pytest.mark.parametrize(
    ("positions", "registers"),
    [("sincos", 0), ("learned", 2), ("rotary", 0), ("rotary", 2), ("relative", 0)],
)
def test_visible_patches_keep_their_places(positions, registers):
    """All patches in another order give the same tokens in that order: a masked encoder knows where they are."""
    config = ViTConfig(
        image_size=(32, 48),
        patch_size=8,
        width=32,
        heads=2,
        depth=2,
        zero_init=False,
        positions=positions,
        registers=registers,
    )
    model = ViT(config, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * noise(*parameter.shape))
    images = noise(2, 3, 32, 48)
    order = torch.stack([torch.randperm(24, generator=torch.Generator().manual_seed(seed)) for seed in (3, 4)])
    whole, shuffled = model(images), model(images, order)
    prefix = config.extra_tokens
    expected = torch.stack([tokens[prefix:][places] for tokens, places in zip(whole, order)])
    torch.testing.assert_close(shuffled[:, prefix:], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(shuffled[:, :prefix], whole[:, :prefix], rtol=1e-5, atol=1e-5)


def in_dinov2s_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As facebookresearch/dinov2 publishes its files: timm's names, ls1 and ls2, and w12 and w3 for SwiGLU."""
    theirs = {"mask_token": torch.zeros(1, WIDTH)}
    top = {"cls_token": "cls_token", "position_embeddings": "pos_embed", "register_tokens": "register_tokens"}
    theirs |= {new: state[f"embeddings.{old}"] for old, new in top.items() if f"embeddings.{old}" in state}
    pairs = [("embeddings.patch_embeddings.projection", "patch_embed.proj"), ("layernorm", "norm")]
    for i in range(DEPTH):
        old, new = f"encoder.layer.{i}", f"blocks.{i}"
        for kind in ("weight", "bias"):
            parts = [state[f"{old}.attention.attention.{part}.{kind}"] for part in ("query", "key", "value")]
            theirs[f"{new}.attn.qkv.{kind}"] = torch.cat(parts)
        theirs |= {f"{new}.ls{n}.gamma": state[f"{old}.layer_scale{n}.lambda1"] for n in (1, 2)}
        mlp = {"weights_in": "w12", "weights_out": "w3", "fc1": "fc1", "fc2": "fc2"}
        pairs += [(f"{old}.mlp.{a}", f"{new}.mlp.{b}") for a, b in mlp.items() if f"{old}.mlp.{a}.weight" in state]
        pairs += [(f"{old}.norm1", f"{new}.norm1"), (f"{old}.norm2", f"{new}.norm2")]
        pairs += [(f"{old}.attention.output.dense", f"{new}.attn.proj")]
    return theirs | {f"{b}.{kind}": state[f"{a}.{kind}"] for a, b in pairs for kind in ("weight", "bias")}


@pytest.mark.parametrize("name", ["dinov2", "dinov2-registers", "dinov2-gated"])
def test_a_published_file_of_dinov2_is_the_same_body(name, tmp_path):
    folder = make_folder(tmp_path / name, name)
    torch.save(in_dinov2s_names(load_file(folder / "model.safetensors")), tmp_path / "dinov2.pth")
    import_checkpoint(tmp_path / "dinov2.pth", tmp_path / "ours", heads=4)
    images = noise(2, 3, SIDE, SIDE)
    assert compare(name, "published file", our_states(tmp_path / "ours", images), states_of(folder, images)) < EXACT


def test_a_body_in_several_files_is_read_by_its_index(tmp_path):
    import_checkpoint(make_folder(tmp_path / "one", "dinov3"), tmp_path / "whole")
    model = transformers.AutoModel.from_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "several", max_shard_size="100KB")
    assert len(list((tmp_path / "several").glob("model-*.safetensors"))) > 1
    import_checkpoint(tmp_path / "several", tmp_path / "ours")
    whole, parts = (load_body(tmp_path / name).model.state_dict() for name in ("whole", "ours"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    index = tmp_path / "several" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    assert "lists no files of the form" in refusal(tmp_path / "several", tmp_path / "again")


# --- refusals ---


def refusal(folder: Path, out: Path) -> str:
    with pytest.raises(EcholessError) as caught:
        import_checkpoint(folder, out)
    sentence = str(caught.value)
    print(sentence)
    assert "\n" not in sentence and sentence.startswith(str(folder)) and not out.exists()
    return sentence


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("vit", {"hidden_act": "relu"}, "hidden_act is 'relu'; our ViT holds gelu"),
        ("beit", {"use_absolute_position_embeddings": True}, "absolute positions and relative biases at once"),
        ("beit", {"use_shared_relative_position_bias": True}, "relative biases per block and shared ones at once"),
        ("beit", {"use_relative_position_bias": False}, "it has no positions"),
        ("vit", {"patch_size": [8, 4]}, "patch"),
    ],
)
def test_parts_that_our_vit_does_not_have_are_named(name, settings, said, tmp_path):
    assert said in refusal(make_folder(tmp_path / "theirs", name, **settings), tmp_path / "ours")


def test_other_architectures_are_refused_by_name(tmp_path):
    config = transformers.SwinConfig(embed_dim=16, depths=[1], num_heads=[2], image_size=32, window_size=4)
    transformers.SwinModel(config).save_pretrained(tmp_path / "swin")
    sentence = refusal(tmp_path / "swin", tmp_path / "ours")
    assert (
        "model_type is 'swin', which is no plain vision transformer that our ViT can hold; allowed: vit, " in sentence
    )


def test_tensors_that_no_part_of_ours_reads_are_named(tmp_path):
    folder = make_folder(tmp_path / "theirs", "vit")
    state = load_file(folder / "model.safetensors")
    state["encoder.layer.0.attention.attention.q_norm.weight"] = torch.ones(12)
    save_file(state, folder / "model.safetensors")
    assert "have an unexpected 'layers.0.attention.attention.q_norm.weight'" in refusal(folder, tmp_path / "ours")


def test_a_model_that_was_faded_in_place_is_refused(tmp_path):
    folder = make_folder(tmp_path / "theirs", "vit")
    settings = json.loads((folder / "config.json").read_text()) | {"faded_shortcuts": {"alphas": [1.0]}}
    (folder / "config.json").write_text(json.dumps(settings))
    assert "fold it first (echoless.fold)" in refusal(folder, tmp_path / "ours")


def test_what_timm_is_not_given_is_refused(tmp_path):
    import_checkpoint(make_folder(tmp_path / "theirs", "dinov3"), tmp_path / "ours")
    with pytest.raises(ConfigError, match=re.escape("--to timm does not hold registers 4, layer_scale 1.0, rotary")):
        export_encoder(tmp_path / "ours", "timm", tmp_path / "timm")


def test_the_options_are_off_unless_named():
    """Nothing that a ViT of ours had before has another name or another tensor."""
    assert set(ViT(ViTConfig(depth=1)).state_dict()) == {
        *("cls_token", "positions", "patch_embed.weight", "patch_embed.bias"),
        *(f"blocks.0.{layer}.{kind}" for layer in LAYERS for kind in ("weight", "bias")),
    }


LAYERS = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"positions": "relative", "registers": 1}, "registers is 1; allowed: 0 with relative positions"),
        ({"positions": "relative", "class_token": False}, "class_token is False"),
        ({"positions": "rotary", "heads": 128}, "heads of a width that 4 divides"),
        ({"positions": "spiral"}, "positions is 'spiral'; allowed: sincos"),
        ({"registers": -1}, "registers is -1"),
    ],
)
def test_options_that_exclude_each_other_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        ViTConfig(**settings)
