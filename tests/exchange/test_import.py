"""Imported checkpoints compute what their own code computes, and start our runs without a change of function.

The references are transformers' ViTMAE and ViT, and a forward of the authors' autoencoder written here from its
description on plain tensors. Files under facebookresearch's names are made from transformers' weights.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import ViTConfig as HFViTConfig
from transformers import ViTMAEConfig, ViTMAEForPreTraining, ViTMAEModel, ViTModel

from echoless.cli.main import main
from echoless.config import MaskedConfig, RunConfig, ShortcutConfig, ViTConfig, from_dict
from echoless.errors import ConfigError, RunError, UntrustedFile
from echoless.exchange import export_encoder, import_checkpoint
from echoless.models import MAE, ViT, sincos_positions
from echoless.objectives import masked_loss, masking_from_noise
from echoless.runs import load_weights
from echoless.training import warm_start

WIDTH, DEPTH, HEADS, PATCH, SIDE = 48, 4, 3, 8, 4
SMALL = {
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
    "image_size": PATCH * SIDE,
    "patch_size": PATCH,
    "layer_norm_eps": 1e-6,
}


def shaken(model: torch.nn.Module) -> torch.nn.Module:
    """Every weight matters, and the positions are tables as in published files."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("position_embeddings", "decoder_pos_embed")):
                table = sincos_positions((SIDE, SIDE), parameter.shape[-1])
                parameter[0].copy_(torch.cat([torch.zeros(1, parameter.shape[-1]), table]))
            else:
                start = 1.0 if "norm" in name and name.endswith("weight") else 0.0
                parameter.copy_(start + 0.08 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.fixture(scope="module")
def vitmae() -> ViTMAEForPreTraining:
    config = ViTMAEConfig(
        **SMALL,
        decoder_hidden_size=32,
        decoder_num_hidden_layers=2,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=128,
        norm_pix_loss=True,
    )
    return shaken(ViTMAEForPreTraining(config))


def in_facebooks_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """From the published description of facebookresearch/mae: timm's names, and decoder_*."""
    theirs = {
        "cls_token": state["vit.embeddings.cls_token"],
        "pos_embed": state["vit.embeddings.position_embeddings"],
        "patch_embed.proj.weight": state["vit.embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": state["vit.embeddings.patch_embeddings.projection.bias"],
        "mask_token": state["decoder.mask_token"],
        "decoder_pos_embed": state["decoder.decoder_pos_embed"],
    }
    pairs = [("vit.layernorm", "norm")]
    pairs += [(f"decoder.decoder_{name}", f"decoder_{name}") for name in ("embed", "norm", "pred")]
    for hf, fb in (("vit.layers", "blocks"), ("decoder.decoder_layers", "decoder_blocks")):
        for i in range(DEPTH if fb == "blocks" else 2):
            for kind in ("weight", "bias"):
                qkv = [state[f"{hf}.{i}.attention.{part}_proj.{kind}"] for part in "qkv"]
                theirs[f"{fb}.{i}.attn.qkv.{kind}"] = torch.cat(qkv)
            pairs += [
                (f"{hf}.{i}.attention.o_proj", f"{fb}.{i}.attn.proj"),
                (f"{hf}.{i}.layernorm_before", f"{fb}.{i}.norm1"),
                (f"{hf}.{i}.layernorm_after", f"{fb}.{i}.norm2"),
                (f"{hf}.{i}.mlp.fc1", f"{fb}.{i}.mlp.fc1"),
                (f"{hf}.{i}.mlp.fc2", f"{fb}.{i}.mlp.fc2"),
            ]
    return theirs | {f"{b}.{kind}": state[f"{a}.{kind}"] for a, b in pairs for kind in ("weight", "bias")}


def facebook_file(path: Path, vitmae: ViTMAEForPreTraining) -> Path:
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([parameter])
    parameter.grad = torch.ones(2)
    optimizer.step()
    torch.save(
        {
            "model": in_facebooks_names(vitmae.state_dict()),
            "optimizer": optimizer.state_dict(),
            "epoch": 799,
            "scaler": {"scale": 65536.0, "growth_factor": 2.0},
            "args": argparse.Namespace(norm_pix_loss=True, mask_ratio=0.75, model="mae_vit_base_patch16", lr=1e-3),
        },
        path,
    )
    return path


def images(batch: int = 3, channels: int = 3) -> Tensor:
    return torch.randn(batch, channels, PATCH * SIDE, PATCH * SIDE, generator=torch.Generator().manual_seed(3))


def open_encoder(folder: Path) -> ViT:
    weights = load_weights(folder / "encoder")
    vit = ViT(from_dict(ViTConfig, weights.config["model"]))
    vit.load_state_dict(weights.tensors)
    return vit


def last_block(vit: ViT, batch: Tensor) -> Tensor:
    features = vit.features(batch)
    return features[features.last_block]


def transformers_tokens(vitmae: ViTMAEForPreTraining, batch: Tensor) -> Tensor:
    """All patches in their order, through the blocks, before the final norm."""
    with torch.no_grad():
        embedded = vitmae.vit.embeddings.patch_embeddings(batch) + vitmae.vit.embeddings.position_embeddings[:, 1:]
        token = vitmae.vit.embeddings.cls_token + vitmae.vit.embeddings.position_embeddings[:, :1]
        x = torch.cat([token.expand(len(batch), 1, -1), embedded], dim=1)
        for layer in vitmae.vit.layers:
            x = layer(x, None)
            x = x[0] if isinstance(x, tuple) else x
    return x


def model_of(folder: Path, **shortcuts: object) -> MAE:
    """A fresh model of the imported shape, under its own or other shortcuts, started from it."""
    config = from_dict(RunConfig, json.loads((folder / "config.json").read_text())).model
    if shortcuts:
        config = replace(config, encoder=replace(config.encoder, shortcuts=ShortcutConfig(**shortcuts)))
    model = MAE(config, torch.Generator().manual_seed(9))
    warm_start(model, folder)
    return model.eval()


@torch.no_grad()
def test_a_facebookresearch_checkpoint_gives_the_features_and_the_loss_of_transformers(vitmae, tmp_path):
    report = import_checkpoint(facebook_file(tmp_path / "mae.pth", vitmae), tmp_path / "out", heads=3, decoder_heads=2)
    assert report.has_decoder and set(report.dropped) == {"args", "epoch", "optimizer", "scaler"}
    torch.testing.assert_close(
        last_block(open_encoder(tmp_path / "out"), images()),
        transformers_tokens(vitmae, images()),
        rtol=1e-4,
        atol=1e-4,
    )
    noise = torch.rand(3, SIDE**2, generator=torch.Generator().manual_seed(1))
    masking, expected = masking_from_noise(noise, 0.75), vitmae(images(), noise=noise)
    model = model_of(tmp_path / "out")
    loss = masked_loss(model, images(), masking, MaskedConfig(normalize_pixels=True))
    torch.testing.assert_close(loss, expected.loss, rtol=1e-5, atol=0)
    # Moved under faded shortcuts, it is still the same function.
    faded = model_of(tmp_path / "out", alpha_min=0.6)
    assert faded.shortcut_record["alphas"][-1] == 0.6
    torch.testing.assert_close(faded(images(), masking), model(images(), masking), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_an_encoder_alone_is_imported_without_its_classifier(vitmae, tmp_path):
    state = in_facebooks_names(vitmae.state_dict())
    state = {name: value for name, value in state.items() if not name.startswith(("decoder", "mask_token", "norm."))}
    state |= {"fc_norm.weight": torch.ones(WIDTH), "fc_norm.bias": torch.zeros(WIDTH)}
    state |= {"head.weight": torch.zeros(10, WIDTH), "head.bias": torch.zeros(10)}
    torch.save({"model": state, "epoch": 1}, tmp_path / "finetuned.pth")
    report = import_checkpoint(tmp_path / "finetuned.pth", tmp_path / "out", heads=3)
    assert not report.has_decoder and report.dropped == ("epoch", "head.*", "fc_norm.*")
    vit = open_encoder(tmp_path / "out")
    assert not vit.config.final_norm
    torch.testing.assert_close(last_block(vit, images()), transformers_tokens(vitmae, images()), rtol=1e-4, atol=1e-4)
    config = replace(
        from_dict(RunConfig, {}).model, encoder=replace(vit.config, shortcuts=ShortcutConfig(alpha_min=0.7))
    )
    faded = MAE(replace(config, decoder_width=32, decoder_depth=2, decoder_heads=2))
    assert "the function is unchanged" in warm_start(faded, tmp_path / "out")
    torch.testing.assert_close(last_block(faded.encoder, images()), last_block(vit, images()), rtol=1e-3, atol=1e-4)


# --- the paper's authors ---

AUTHORS_ALPHA = 0.7


def authors_state() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return 0.1 * torch.randn(*shape, generator=generator)

    decoder = 32
    state = {
        "cls_token": draw(1, 1, WIDTH),
        "pos_embed": draw(1, SIDE**2 + 1, WIDTH),
        "patch_embed.proj.weight": draw(WIDTH, 3, PATCH, PATCH),
        "patch_embed.proj.bias": draw(WIDTH),
        "decoder_cls_token": draw(1, 1, decoder),
        "decoder_pos_embed": torch.cat([draw(1, decoder), sincos_positions((SIDE, SIDE), decoder)])[None],
    }
    linears = {"decoder_embed": (decoder, decoder), "decoder_pred": (3 * PATCH**2, decoder)}
    for prefix, width, depth in (("blocks", WIDTH, DEPTH), ("decoder_blocks", decoder, 3)):
        for i in range(depth):
            linears |= {
                f"{prefix}.{i}.attn.qkv": (3 * width, width),
                f"{prefix}.{i}.attn.proj": (width, width),
                f"{prefix}.{i}.mlp.fc1": (4 * width, width),
                f"{prefix}.{i}.mlp.fc2": (width, 4 * width),
            }
            for norm in ("norm1", "norm2"):
                state[f"{prefix}.{i}.{norm}.weight"] = 1 + draw(width)
                state[f"{prefix}.{i}.{norm}.bias"] = draw(width)
    for i in range(DEPTH // 2):
        linears |= {f"skip.{i}.fc.0": (decoder, WIDTH + decoder), f"skip.{i}.fc.2": (decoder, decoder)}
        state[f"skip.{i}.mask_token"] = draw(1, 1, WIDTH)
    state |= {"decoder_norm.weight": 1 + draw(decoder), "decoder_norm.bias": draw(decoder)}
    for name, shape in linears.items():
        state |= {f"{name}.weight": draw(*shape), f"{name}.bias": draw(shape[0])}
    return state


def authors_predictions(
    state: dict[str, Tensor], batch: Tensor, noise: Tensor, alpha_min: float, decoder_depth: int = 3
) -> Tensor:
    """The hidden patches, in the order of the noise."""

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], 1e-6)

    def block(x: Tensor, name: str, heads: int, alphas: tuple[float, float] = (1, 1)) -> Tensor:
        q, k, v = linear(norm(x, f"{name}.norm1"), f"{name}.attn.qkv").chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))
        mixed = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        x = alphas[0] * x + linear(mixed.transpose(1, 2).flatten(2), f"{name}.attn.proj")
        return alphas[1] * x + linear(F.gelu(linear(norm(x, f"{name}.norm2"), f"{name}.mlp.fc1")), f"{name}.mlp.fc2")

    order = noise.argsort(dim=1)
    keep = order[:, : SIDE**2 // 4]
    patches = F.conv2d(batch, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=PATCH)
    patches = patches.flatten(2).transpose(1, 2) + state["pos_embed"][:, 1:]
    visible = torch.stack([sample[ids] for sample, ids in zip(patches, keep)])
    token = (state["cls_token"] + state["pos_embed"][:, :1]).expand(len(batch), 1, -1)
    x, taps = torch.cat([token, visible], dim=1), []
    fade = [1 - (1 - alpha_min) * i / (2 * DEPTH - 1) for i in range(2 * DEPTH)]
    for i in range(DEPTH):
        x = block(x, f"blocks.{i}", HEADS, (fade[2 * i], fade[2 * i + 1]))
        if i % 2:
            taps.append(x)
    y = torch.cat([state["decoder_cls_token"], state["decoder_pos_embed"][:, 1:]], dim=1).expand(len(batch), -1, -1)
    y = linear(y, "decoder_embed")
    for i in range(decoder_depth):
        if taps:
            y = y + authors_skip(state, f"skip.{i}", linear, taps.pop(), y, keep)
        y = block(y, f"decoder_blocks.{i}", 2)
    predicted = linear(norm(y, "decoder_norm"), "decoder_pred")[:, 1:]
    return torch.stack([sample[ids] for sample, ids in zip(predicted, order[:, SIDE**2 // 4 :])])


def authors_skip(state, name, linear, tap: Tensor, y: Tensor, keep: Tensor) -> Tensor:
    full = state[f"{name}.mask_token"].expand(len(y), y.shape[1], -1).clone()
    full[:, 0] = tap[:, 0]
    for sample, ids, values in zip(full, keep, tap[:, 1:]):
        sample[1 + ids] = values
    return linear(F.silu(linear(torch.cat([full, y], dim=-1), f"{name}.fc.0")), f"{name}.fc.2")


@torch.no_grad()
def test_a_checkpoint_of_the_authors_predicts_what_its_description_says(tmp_path):
    state = authors_state()
    torch.save({"model": state, "args": argparse.Namespace(min_decay=AUTHORS_ALPHA)}, tmp_path / "authors.pth")
    with pytest.raises(ConfigError, match=r"give --alpha-min \(its training settings say min_decay 0.7\)"):
        import_checkpoint(tmp_path / "authors.pth", tmp_path / "out", heads=3, decoder_heads=2)
    options = {"heads": 3, "decoder_heads": 2, "alpha_min": AUTHORS_ALPHA}
    report = import_checkpoint(tmp_path / "authors.pth", tmp_path / "out", **options)
    assert report.has_decoder and report.encoder.shortcuts.alpha_min == AUTHORS_ALPHA
    noise = torch.rand(3, SIDE**2, generator=torch.Generator().manual_seed(1))
    masking = masking_from_noise(noise, 0.75)
    expected = authors_predictions(state, images(), noise, AUTHORS_ALPHA)
    assert not torch.allclose(expected, authors_predictions(state, images(), noise, 1.0), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(model_of(tmp_path / "out")(images(), masking), expected, rtol=1e-4, atol=1e-5)
    plain = model_of(tmp_path / "out", alpha_min=1.0)
    torch.testing.assert_close(plain(images(), masking), expected, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_an_authors_decoder_with_fewer_blocks_than_skips_reads_the_deepest(tmp_path):
    """Like their large model: skips that no decoder block reads are dropped, and the predictions are the same."""
    unused = ("decoder_blocks.1", "decoder_blocks.2")
    state = {name: tensor for name, tensor in authors_state().items() if not name.startswith(unused)}
    torch.save({"model": state}, tmp_path / "large.pth")
    report = import_checkpoint(tmp_path / "large.pth", tmp_path / "out", heads=3, decoder_heads=2, alpha_min=0.7)
    assert report.has_decoder and report.dropped == (f"{DEPTH // 2 - 1} skips that no decoder block reads",)
    model = model_of(tmp_path / "out")
    assert model.decoder.taps == (DEPTH - 1,)
    noise = torch.rand(3, SIDE**2, generator=torch.Generator().manual_seed(1))
    expected = authors_predictions(state, images(), noise, 0.7, decoder_depth=1)
    torch.testing.assert_close(model(images(), masking_from_noise(noise, 0.75)), expected, rtol=1e-4, atol=1e-5)


def test_a_decoder_with_positions_of_its_own_is_dropped_and_said_so(tmp_path):
    state = authors_state()
    state["decoder_pos_embed"] = state["decoder_pos_embed"] + 0.1
    torch.save({"model": state}, tmp_path / "learned.pth")
    report = import_checkpoint(tmp_path / "learned.pth", tmp_path / "out", heads=3, decoder_heads=2, alpha_min=0.7)
    assert not report.has_decoder and "its positions are not sines and cosines" in report.dropped[0]


# --- transformers folders ---


@torch.no_grad()
def test_a_vitmae_folder_gives_the_loss_of_transformers(vitmae, tmp_path):
    vitmae.save_pretrained(tmp_path / "hf")
    report = import_checkpoint(tmp_path / "hf", tmp_path / "out")
    assert report.has_decoder and report.encoder.norm_eps == 1e-6
    noise = torch.rand(3, SIDE**2, generator=torch.Generator().manual_seed(1))
    config = from_dict(RunConfig, json.loads((tmp_path / "out" / "config.json").read_text()))
    loss = masked_loss(model_of(tmp_path / "out"), images(), masking_from_noise(noise, 0.75), config.objective)
    torch.testing.assert_close(loss, vitmae(images(), noise=noise).loss, rtol=1e-5, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("kind", [ViTModel, ViTMAEModel])
def test_an_encoder_folder_of_transformers_gives_its_features(kind, tmp_path):
    config = {ViTModel: HFViTConfig, ViTMAEModel: ViTMAEConfig}[kind](**SMALL)
    model = shaken(kind(config))
    model.save_pretrained(tmp_path / "hf")
    report = import_checkpoint(tmp_path / "hf", tmp_path / "out")
    assert not report.has_decoder
    vit = open_encoder(tmp_path / "out")
    extra = {} if kind is ViTModel else {"noise": torch.arange(SIDE**2).float().expand(3, -1)}
    model.config.mask_ratio = 0.0
    expected = model(images(), **extra).last_hidden_state
    torch.testing.assert_close(vit(images()), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_what_is_exported_can_be_imported_again(vitmae, tmp_path):
    """Also through a link, as download caches keep their files; mean and deviation come along."""
    import_checkpoint(facebook_file(tmp_path / "mae.pth", vitmae), tmp_path / "a", heads=3, decoder_heads=2)
    export_encoder(tmp_path / "a", "hf", tmp_path / "hf")
    (tmp_path / "link").mkdir()
    for file in (tmp_path / "hf").iterdir():
        (tmp_path / "link" / file.name).symlink_to(file)
    import_checkpoint(tmp_path / "link", tmp_path / "b")
    first, second = open_encoder(tmp_path / "a"), open_encoder(tmp_path / "b")
    torch.testing.assert_close(last_block(second, images()), last_block(first, images()), rtol=1e-4, atol=1e-4)
    assert load_weights(tmp_path / "b" / "encoder").config["mean"] == [0.485, 0.456, 0.406]


def test_an_imported_folder_is_evaluated_like_a_run(vitmae, tmp_path):
    from echoless.evaluation.frozen import load as open_for_evaluation

    import_checkpoint(facebook_file(tmp_path / "mae.pth", vitmae), tmp_path / "out", heads=3, decoder_heads=2)
    encoder = open_for_evaluation(tmp_path / "out")
    assert encoder.image_size == (32, 32) and encoder.mean == (0.485, 0.456, 0.406)


# --- refusals ---


def changed(vitmae: ViTMAEForPreTraining, **tensors: Tensor | None) -> dict[str, Tensor]:
    state = in_facebooks_names(vitmae.state_dict()) | {k.replace("__", "."): v for k, v in tensors.items()}
    return {name: value for name, value in state.items() if value is not None}


def test_what_does_not_fit_is_refused_by_name_and_leaves_nothing(vitmae, tmp_path):
    cases = {
        "the weights have an unexpected 'blocks.0.ls1.gamma'": changed(vitmae, blocks__0__ls1__gamma=torch.ones(3)),
        "the weights lack 'blocks.2.attn.proj.weight'": changed(vitmae, blocks__2__attn__proj__weight=None),
        r"blocks.1.mlp.fc2.bias has the shape \(7,\); allowed by its other shapes: \(48,\)": changed(
            vitmae, blocks__1__mlp__fc2__bias=torch.ones(7)
        ),
        "holds numbers that are not finite": changed(vitmae, norm__bias=torch.full((WIDTH,), float("nan"))),
        "is not a known checkpoint; allowed": {"layer1.0.conv1.weight": torch.ones(3)},
        "holds nothing ..., which is not a known checkpoint": {},
    }
    for reason, state in cases.items():
        torch.save({"model": state}, tmp_path / "bad.pth")
        with pytest.raises(UntrustedFile, match=reason):
            import_checkpoint(tmp_path / "bad.pth", tmp_path / "out", heads=3, decoder_heads=2)
    assert not list(tmp_path.glob("out*"))


def test_what_the_file_does_not_say_is_asked_for(vitmae, tmp_path):
    file = facebook_file(tmp_path / "mae.pth", vitmae)
    cases = [
        ({}, "how many heads its encoder of width 48 has; give --heads"),
        ({"heads": 3}, "how many heads its decoder of width 32 has; give --decoder-heads"),
        (
            {"heads": 3, "decoder_heads": 2, "alpha_min": 0.6},
            "alpha_min is 0.6, but mae.pth is a plain residual network",
        ),
        ({"heads": 3, "decoder_heads": 2, "image_size": (64, 64)}, "image_size is 64 x 64, which has 64 patches of 8"),
        ({"heads": 3, "decoder_heads": 2, "mean": (0.5,)}, r"mean is \(0.5,\); allowed: 3 numbers"),
    ]
    for options, reason in cases:
        with pytest.raises(ConfigError, match=reason):
            import_checkpoint(file, tmp_path / "out", **options)
    oblong = in_facebooks_names(vitmae.state_dict())
    oblong["pos_embed"] = oblong["pos_embed"][:, :-1]
    torch.save({"model": oblong}, tmp_path / "oblong.pth")
    with pytest.raises(ConfigError, match="the weights have 15 positions, which is no square; give --image-size"):
        import_checkpoint(tmp_path / "oblong.pth", tmp_path / "out", heads=3, decoder_heads=2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(RunError, match="is not empty"):
        import_checkpoint(file, tmp_path / "full", heads=3, decoder_heads=2)


def test_the_verb_says_what_was_found_and_what_was_dropped(vitmae, tmp_path, capsys):
    file = facebook_file(tmp_path / "mae.pth", vitmae)
    arguments = ["import", str(file), "--out", str(tmp_path / "out"), "--heads", "3", "--decoder-heads", "2"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "a masked autoencoder of facebookresearch/mae: width 48, 4 blocks" in printed
    assert "dropped: args, epoch, optimizer, scaler" in printed
    record = json.loads((tmp_path / "out" / "import.json").read_text())
    assert record["file"] == "mae.pth" and len(record["sha256"]) == 64
