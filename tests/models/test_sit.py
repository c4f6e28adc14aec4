"""SiT: the published sizes, diffusers' DiT with the same weights, the authors' long skips, fading over every block."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from echoless.config import FlowConfig, ShortcutConfig, SiTConfig, from_dict, sit_preset, to_dict
from echoless.config.diffusion import SIT_SIZES
from echoless.errors import ConfigError
from echoless.models import SiT, count_parameters
from echoless.objectives import FlowObjective, LossModule
from echoless.shortcuts import alphas

PLAIN = ShortcutConfig(alpha_min=1.0)


def small_sit(alpha_min: float = 0.7, awake: bool = True, **options) -> SiT:
    config = SiTConfig(
        **{"image_size": (8, 8), "channels": 4, "width": 32, "depth": 4, "heads": 4, "classes": 5} | options,
        shortcuts=ShortcutConfig(alpha_min=alpha_min),
    )
    model = SiT(config, torch.Generator().manual_seed(0))
    if awake:  # every path carries something: gates and biases too
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return model


def batch(channels: int = 4, size=(8, 8)):
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(3, channels, *size, generator=generator)
    return images, torch.tensor([0.0, 0.37, 1.0]), torch.tensor([4, 0, 2])


def as_dit(model: SiT):
    """diffusers' DiT with the weights of a SiT that has neither long skips nor fading."""
    from diffusers import DiTTransformer2DModel

    c = model.config
    theirs = DiTTransformer2DModel(
        num_attention_heads=c.heads,
        attention_head_dim=c.width // c.heads,
        in_channels=c.channels,
        out_channels=c.channels * (2 if c.learn_sigma else 1),
        num_layers=c.depth,
        sample_size=c.image_size[0],
        patch_size=c.patch_size,
        num_embeds_ada_norm=c.classes,
        norm_eps=c.norm_eps,
    ).eval()
    w, p = model.state_dict(), c.patch_size
    state = theirs.state_dict()
    state["pos_embed.proj.weight"] = w["patch_embed.weight"].reshape(c.width, p, p, c.channels).permute(0, 3, 1, 2)
    state["pos_embed.proj.bias"] = w["patch_embed.bias"]
    for index, block in enumerate(theirs.transformer_blocks):
        # Every block of theirs has embeddings of its own, with frequencies one step further apart than ours.
        block.norm1.emb.time_proj.downscale_freq_shift = 0
        name, ours = f"transformer_blocks.{index}", f"blocks.{index}"
        embed = f"{name}.norm1.emb"
        state[f"{embed}.class_embedder.embedding_table.weight"] = w["label_table"]
        for kind in ("weight", "bias"):
            state[f"{embed}.timestep_embedder.linear_1.{kind}"] = w[f"time_embed.0.{kind}"]
            state[f"{embed}.timestep_embedder.linear_2.{kind}"] = w[f"time_embed.2.{kind}"]
            state[f"{name}.norm1.linear.{kind}"] = w[f"{ours}.modulation.{kind}"]
            for part, value in zip("qkv", w[f"{ours}.attn.qkv.{kind}"].chunk(3)):
                state[f"{name}.attn1.to_{part}.{kind}"] = value
            state[f"{name}.attn1.to_out.0.{kind}"] = w[f"{ours}.attn.proj.{kind}"]
            state[f"{name}.ff.net.0.proj.{kind}"] = w[f"{ours}.mlp.fc1.{kind}"]
            state[f"{name}.ff.net.2.{kind}"] = w[f"{ours}.mlp.fc2.{kind}"]
    for kind in ("weight", "bias"):
        state[f"proj_out_1.{kind}"] = w[f"modulation.{kind}"]
        state[f"proj_out_2.{kind}"] = w[f"to_pixels.{kind}"]
    theirs.load_state_dict(state)
    return theirs


@pytest.mark.parametrize("options", [{}, {"learn_sigma": False}, {"patch_size": 4, "channels": 3, "depth": 3}], ids=str)
@torch.no_grad()
def test_it_is_diffusers_dit_with_its_weights(options):
    model = small_sit(1.0, long_skips=False, **options)
    images, time, labels = batch(model.config.channels)
    expected = as_dit(model)(images, time, labels).sample[:, : model.config.channels]
    output = model(images, time, labels)
    error = float((output - expected).abs().max() / expected.abs().max())
    print(f"SiT {options}: relative difference {error:.1e} from diffusers' DiT")
    assert error < 1e-5


@pytest.mark.parametrize("alpha_min", [1.0, 0.6])
@torch.no_grad()
def test_long_skips_and_fading_are_those_of_the_authors(alpha_min):
    """A second version: each block of the second half first takes in a linear of its mirror image's output."""
    model = small_sit(alpha_min)
    images, time, labels = batch()
    notes = {}
    output = model(images, time, labels, note=lambda name, value: notes.setdefault(name, value))
    c, w = F.silu(model.time_embed(_waves(time)) + model.label_table[labels]), model.config.width
    stream, seen = notes["embed"], []
    schedule = torch.linspace(1, alpha_min, 8).tolist()
    for index, block in enumerate(model.blocks):
        if index >= 2:
            skip = model.skips[index - 2]
            stream = stream + seen[3 - index] @ skip.weight.T + skip.bias
        m = [part[:, None] for part in (c @ block.modulation.weight.T + block.modulation.bias).split(w, dim=1)]
        for kind, branch, alpha in zip(("attn", "mlp"), (block.attn, block.mlp), schedule[2 * index :]):
            shift, scale, gate = m[:3] if kind == "attn" else m[3:]
            stream = alpha * stream + gate * branch(F.layer_norm(stream, (w,), eps=1e-6) * (1 + scale) + shift)
            torch.testing.assert_close(notes[f"block{index:02d}/+{kind}"], stream, rtol=1e-4, atol=1e-4)
        seen.append(stream)
    shift, scale = model.modulation(c)[:, None].split(w, dim=-1)
    values = model.to_pixels(F.layer_norm(stream, (w,), eps=1e-6) * (1 + scale) + shift)
    values = values.reshape(3, 4, 4, 2, 2, 8)[..., :4]
    expected = torch.einsum("bhwpqc->bchpwq", values).reshape(3, 4, 8, 8)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def _waves(time):
    frequencies = 10000.0 ** -(torch.arange(128, dtype=torch.float64) / 128)
    angles = time.double()[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1).float()


@pytest.mark.parametrize(("name", "published"), [("sit-s2", 33), ("sit-b2", 130), ("sit-l2", 458), ("sit-xl2", 675)])
def test_sizes_are_the_published_ones(name, published):
    with torch.device("meta"):
        plain = count_parameters(SiT(sit_preset(name, classes=1000, long_skips=False, shortcuts=PLAIN)))
        faded = SiT(sit_preset(name, classes=1000, shortcuts=ShortcutConfig(alpha_min=0.8)))
    extra = count_parameters(faded.skips)
    print(f"{name}: {plain:,} parameters, published {published} M; the long skips add {extra:,}")
    assert round(plain / 1e6) == published
    assert count_parameters(faded) == plain + extra, "fading adds none"


def test_every_size_has_its_three_patches():
    assert set(SIT_SIZES) == {"sit-tiny"} | {
        f"sit-{size}{patch}" for size in ("s", "b", "l", "xl") for patch in (2, 4, 8)
    }
    assert sit_preset("sit-l8").long_skips, "as in the paper; the published SiT has none"
    assert sit_preset("sit-l8").patch_size == 8 and sit_preset("sit-xl4").depth == 28


def test_it_starts_closed():
    """adaLN-Zero: at the start every block is its shortcut and the output is zero."""
    model = small_sit(0.7, awake=False, long_skips=False)
    features = model.features(*batch())
    product = 1.0
    for alpha in model.shortcut_record["alphas"]:
        product *= alpha
    torch.testing.assert_close(features[features.last_block], product * features["embed"], rtol=1e-5, atol=1e-6)
    assert not model(*batch()).any()


def test_shortcuts_fade_from_the_first_block_to_the_last():
    record = small_sit(0.7).shortcut_record
    assert record == {"variant": "faded", "alphas": list(alphas(4, alpha_min=0.7))}
    assert small_sit(1.0).shortcut_record["variant"] == "identity"


@torch.no_grad()
def test_features_have_names_and_no_class_token():
    model = small_sit().train()
    images, time, labels = batch()
    features = model.features(images, time, labels)
    expected = ["embed"]
    for index in range(4):
        parts = (["+skip"] if index >= 2 else []) + ["attn", "+attn", "mlp", "+mlp"]
        expected += [f"block{index:02d}/{part}" for part in parts]
    assert list(features) == [*expected, "norm"]
    assert features["block03/+mlp"].shape == (3, 16, 32)
    assert torch.equal(features.pool(), features.pool(how="patch_mean"))
    with pytest.raises(ValueError, match="has no class token; allowed: mean, patch_mean"):
        features.pool(how="cls")
    assert model.training


@torch.no_grad()
def test_no_label_is_the_last_row_of_the_table_and_an_unconditional_model_has_none():
    model, (images, time, labels) = small_sit(), batch()
    torch.testing.assert_close(model(images, time), model(images, time, torch.full((3,), 5)), rtol=0, atol=1e-5)
    assert not torch.equal(model(images, time), model(images, time, labels))
    alone = small_sit(classes=None)
    assert "label_table" not in alone.state_dict() and alone(images, time).shape == images.shape
    with pytest.raises(ValueError, match="labels were given to a model without classes"):
        alone(images, time, labels)


@pytest.mark.parametrize("options", [{}, {"classes": None, "long_skips": False}], ids=str)
def test_every_parameter_receives_a_gradient(options, generator):
    model = small_sit(**options)
    objective = FlowObjective(FlowConfig(label_dropout=0.3), (4, 8, 8), model.config.classes)
    images, labels = torch.randn(20, 4, 8, 8, generator=generator), torch.arange(20) % 5
    objective.loss(model, images, labels, objective.draw(20, 0, 0)).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]


def test_the_same_generator_gives_the_same_weights_and_no_other_is_used():
    state = torch.get_rng_state()
    one, two = (small_sit(awake=False).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(torch.get_rng_state(), state)


def test_bfloat16_autocast_gives_a_finite_loss_near_the_float32_one(generator):
    model, objective = small_sit(awake=False), FlowObjective(FlowConfig(), (4, 8, 8), 5)
    images, labels, draws = torch.randn(8, 4, 8, 8, generator=generator), torch.arange(8) % 5, objective.draw(8, 0, 0)
    exact = objective.loss(model, images, labels, draws)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = objective.loss(model, images, labels, draws)
    loss.backward()
    assert loss.dtype == torch.float32 and abs(loss - exact) < 0.02 * exact


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [FlowConfig(), FlowConfig(interpolant="vp", prediction="score", weighting="likelihood")],
    ids=["linear-velocity", "vp-score"],
)
def test_compilation_gives_the_eager_loss(config, compiler, generator):
    model = small_sit(depth=2)
    objective = FlowObjective(replace(config, label_dropout=0.3), (4, 8, 8), 5)
    module = LossModule(model, objective)
    arguments = torch.randn(8, 4, 8, 8, generator=generator), torch.arange(8) % 5, objective.draw(8, 0, 0)
    eager = module(*arguments)
    compiled = torch.compile(module, fullgraph=True)(*arguments)
    compiled.backward()
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=0)


def test_a_config_survives_json_and_refuses_nonsense():
    config = sit_preset("sit-b4", classes=10, channels=3, long_skips=False)
    assert from_dict(SiTConfig, to_dict(config)) == config
    with pytest.raises(ConfigError, match="depth is 3; allowed: an even number with long_skips"):
        SiTConfig(depth=3)
    assert SiTConfig(depth=3, long_skips=False).blocks == 3
    with pytest.raises(ConfigError, match=r"preset is 'sit-x2'; .* did you mean 'sit-xl2'"):
        sit_preset("sit-x2")
