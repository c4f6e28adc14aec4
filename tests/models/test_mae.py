"""The long-skip decoder is the paper's, no parameter is idle, fading adds none, and compilation changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from echoless.config import MaskedConfig, from_dict, mae_preset, to_dict
from echoless.config.model import MAEConfig
from echoless.config.presets import PRESETS, SIZES
from echoless.models import MAE, count_parameters, patchify, tap_blocks
from echoless.objectives import masked_loss, random_masking


def small_mae(depth: int = 4, decoder_depth: int = 2, **options) -> MAE:
    config = mae_preset("tiny-32", **options)
    encoder = replace(config.encoder, width=48, depth=depth, heads=3)
    config = replace(config, encoder=encoder, decoder_width=32, decoder_depth=decoder_depth, decoder_heads=2)
    return MAE(config, torch.Generator().manual_seed(0))


def wake(model: MAE, std: float = 0.05) -> MAE:
    """Replace what starts at zero, so that every path carries something."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=std, generator=generator)
    return model


def batch(size: int = 3, ratio: float = 0.75):
    generator = torch.Generator().manual_seed(2)
    return torch.rand(size, 3, 32, 32, generator=generator), random_masking(size, 64, ratio, generator)


@torch.no_grad()
def test_the_decoder_is_the_paper_written_out_token_by_token():
    """A second, naive version: tokens in image order, mask tokens filled in, concatenation, no shortcut taken."""
    model = wake(small_mae(depth=6, decoder_depth=4, alpha_min=0.6))
    images, masking = batch()
    blocks, decoder = [], model.decoder
    keep_block = lambda name, value: blocks.append(value) if name.endswith("+mlp") else None  # noqa: E731
    model.encoder(images, masking.keep_BK, note=lambda name, value: (keep_block(name, value), value)[1])

    x = torch.cat([decoder.cls_token[None], decoder.positions]).expand(3, -1, -1)
    x = F.linear(x, decoder.embed.weight, decoder.embed.bias)
    taps = [5, 3, 1]
    for index, block in enumerate(decoder.blocks):
        if index < len(taps):
            skip, tokens = decoder.skips[index], blocks[taps[index]]
            filled = skip.mask_token.expand(3, 65, -1).clone()
            filled[:, 0] = tokens[:, 0]
            for sample in range(3):
                filled[sample, 1 + masking.keep_BK[sample]] = tokens[sample, 1:]
            x = x + skip.fc2(F.silu(skip.fc1(torch.cat([filled, x], dim=-1))))
        x = block(x)
    everywhere = decoder.to_pixels(decoder.norm(x))[:, 1:]
    expected = torch.stack([everywhere[sample, masking.hidden_BM[sample]] for sample in range(3)])
    torch.testing.assert_close(model(images, masking), expected, rtol=1e-4, atol=1e-5)


def test_latents_reach_the_decoder_through_skips_only_and_start_at_zero():
    model = small_mae(alpha_min=0.6)
    images, masking = batch()
    assert not model(images, masking).any(), "every skip and the last layer start at zero"


@pytest.mark.parametrize("decoder", ["long_skips", "plain"])
@pytest.mark.parametrize("decoder_depth", [2, 4, 8])
@pytest.mark.parametrize("depth", [4, 8, 12, 24])
def test_every_parameter_receives_a_gradient(depth, decoder_depth, decoder):
    model = wake(small_mae(depth, decoder_depth, alpha_min=0.8, decoder=decoder))
    images, masking = batch()
    masked_loss(model, images, masking, MaskedConfig()).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not idle


@pytest.mark.parametrize(
    ("depth", "decoder_depth", "taps"),
    [
        (12, 8, (11, 9, 7, 5, 3, 1)),
        (24, 8, (23, 20, 17, 14, 11, 8, 5, 2)),
        (12, 2, (11, 5)),
        (5, 8, (4, 2, 0)),
        (1, 1, (0,)),
    ],
)
def test_taps_are_every_second_block_and_never_more_than_the_decoder_reads(depth, decoder_depth, taps):
    assert tap_blocks(depth, decoder_depth) == taps


@pytest.mark.parametrize(("depth", "last"), [(12, 1), (18, 3), (24, 9)])
def test_taps_of_the_authors_are_the_deepest_of_every_second_block(depth, last):
    """Their code for an 8-block decoder: (11, ..., 1), (17, 15, ..., 3) and (23, 21, ..., 9)."""
    assert tap_blocks(depth, 8, "authors") == tuple(range(depth - 1, last - 1, -2))


@pytest.mark.parametrize("decoder", ["long_skips", "plain"])
def test_fading_adds_no_parameter(decoder):
    counts = {a: count_parameters(small_mae(12, 4, alpha_min=a, decoder=decoder)) for a in (1.0, 0.6)}
    print(f"parameters: alpha_min 1.0 {counts[1.0]}, alpha_min 0.6 {counts[0.6]}")
    assert counts[1.0] == counts[0.6]
    assert small_mae(alpha_min=1.0).state_dict().keys() == small_mae(alpha_min=0.6).state_dict().keys()


def test_the_plain_base_model_has_the_published_size():
    """He et al.'s ViT-B encoder and 512 x 8 decoder: 111.9 M parameters with the position tables."""
    model = MAE(mae_preset("base", decoder="plain", alpha_min=1.0))
    fixed_positions = 197 * (768 + 512)  # a frozen parameter there, a buffer here
    assert count_parameters(model) + fixed_positions == 111_907_840


@pytest.mark.parametrize(
    ("depth", "alpha_min"), [(2, 0.6), pytest.param(12, 1.0, marks=pytest.mark.slow)], ids=["faded", "deep"]
)
def test_compilation_gives_the_eager_loss(depth, alpha_min, compiler):
    model = wake(small_mae(depth, max(1, depth // 4), alpha_min=alpha_min))
    images, masking = batch()
    eager = masked_loss(model, images, masking, MaskedConfig())
    compiled = torch.compile(masked_loss, fullgraph=True)(model, images, masking, MaskedConfig())
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=0)


@pytest.mark.parametrize("decoder", ["long_skips", "plain"])
def test_bfloat16_autocast_gives_a_finite_loss_near_the_float32_one(decoder):
    model = wake(small_mae(alpha_min=0.6, decoder=decoder))
    images, masking = batch()
    exact = masked_loss(model, images, masking, MaskedConfig())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = masked_loss(model, images, masking, MaskedConfig())
    loss.backward()
    assert loss.isfinite() and loss.dtype == torch.float32
    assert abs(loss - exact) < 0.02 * exact
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_features_are_unmasked_named_and_the_same_twice():
    model = wake(small_mae(alpha_min=0.6)).train()
    images, _ = batch()
    features, again = model.features(images), model.features(images)
    assert list(features)[:5] == ["embed", "block00/attn", "block00/+attn", "block00/mlp", "block00/+mlp"]
    assert features["block03/+mlp"].shape == (3, 65, 48)
    assert all(torch.equal(features[name], again[name]) for name in features)
    assert torch.equal(features.pool(), features["block03/+mlp"].mean(1))
    assert torch.equal(features.pool("block01/+attn", "cls"), features["block01/+attn"][:, 0])
    assert torch.equal(features.pool(how="patch_mean"), features["block03/+mlp"][:, 1:].mean(1))
    assert model.training, "the mode it was called in is restored"
    assert list(model.features(images, only=["block02/mlp"])) == ["block02/mlp"]


@torch.no_grad()
def test_each_shortcut_is_alpha_times_the_stream_plus_the_branch():
    model = wake(small_mae(alpha_min=0.6))
    features = model.features(batch()[0])
    stream, alphas = features["embed"], model.shortcut_record["alphas"]
    for index in range(4):
        for kind, alpha in zip(("attn", "mlp"), alphas[2 * index :]):
            stream = alpha * stream + features[f"block{index:02d}/{kind}"]
            torch.testing.assert_close(features[f"block{index:02d}/+{kind}"], stream, rtol=1e-5, atol=1e-5)
            stream = features[f"block{index:02d}/+{kind}"]


def test_reconstructions_keep_what_was_visible():
    model = wake(small_mae(alpha_min=0.6))
    images, masking = batch()
    result = patchify(model.reconstruct(images, masking).detach(), 4)
    original = patchify(images, 4)
    for sample in range(3):
        assert torch.equal(result[sample, masking.keep_BK[sample]], original[sample, masking.keep_BK[sample]])
        hidden = masking.hidden_BM[sample]
        assert torch.equal(result[sample, hidden], model(images, masking)[sample].detach())


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("tiny")])
def test_small_presets_run_with_any_channel_count(name):
    config = mae_preset(name, channels=5)
    model = MAE(config)
    images = torch.rand(1, 5, *config.encoder.image_size)
    masking = random_masking(1, len(model.encoder.positions), 0.75, torch.Generator().manual_seed(0))
    assert masked_loss(model, images, masking, MaskedConfig()).isfinite()


def test_every_size_is_the_one_named():
    sizes = {name: (size.width, size.depth) for name, size in SIZES.items()}
    assert set(sizes.values()) == {(192, 12), (384, 12), (768, 12), (768, 18), (1024, 12), (1024, 24), (1280, 32)}
    assert mae_preset("huge").encoder.patch_size == 14
    assert mae_preset("tiny-16").encoder.patch_size == 2


def test_a_config_survives_json():
    config = mae_preset("tiny-32", channels=4, image_size=(32, 16), alpha_min=0.7, variant="scale_both")
    assert from_dict(MAEConfig, to_dict(config)) == config


def test_wrong_channels_are_refused():
    with pytest.raises(ValueError, match=r"images have the shape \(1, 1, 32, 32\); allowed: \(batch, 3, height"):
        small_mae().features(torch.zeros(1, 1, 32, 32))
