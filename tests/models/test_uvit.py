"""U-ViT: the published sizes, the published function (against a second, plain version), fading over every block."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from echoless.config import DiffusionConfig, ShortcutConfig, UViTConfig, from_dict, to_dict, uvit_preset
from echoless.config.diffusion import UVIT_SIZES
from echoless.errors import ConfigError
from echoless.models import UViT, count_parameters
from echoless.objectives import DiffusionObjective, LossModule
from echoless.shortcuts import alphas

PLAIN = ShortcutConfig(alpha_min=1.0)
NOISE = DiffusionConfig(label_dropout=0.3)


def small_uvit(alpha_min: float = 0.7, awake: bool = True, **options) -> UViT:
    config = UViTConfig(
        **{"image_size": (8, 12), "width": 32, "depth": 4, "heads": 4, "zero_init": alpha_min != 1.0} | options,
        shortcuts=ShortcutConfig(alpha_min=alpha_min),
    )
    model = UViT(config, torch.Generator().manual_seed(0))
    if awake:  # every path carries something, and norms and biases matter
        generator = torch.Generator().manual_seed(1)
        for name, parameter in model.named_parameters():
            shift = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            torch.nn.init.normal_(parameter, shift, 0.15, generator=generator)
    return model


def batch(channels: int = 3, size=(8, 12), samples: int = 3):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(samples, channels, *size, generator=generator), torch.tensor([0.0, 333.3, 999.0])[:samples]


def reference(model: UViT, images, time, label_row=None):
    """The published network in plain torch, one operation after the other, in double precision."""
    w = {name: value.double() for name, value in model.state_dict().items()}
    c = model.config
    (B, C, H, W), p, heads = images.shape, c.patch_size, c.heads
    kernel = w["patch_embed.weight"].reshape(c.width, p, p, C).permute(0, 3, 1, 2)
    x = F.conv2d(images.double(), kernel, w["patch_embed.bias"], stride=p).flatten(2).transpose(1, 2)
    half = c.width // 2
    angles = [[float(t) * math.exp(-math.log(10000) * k / half) for k in range(half)] for t in time]
    token = torch.tensor([[math.cos(a) for a in row] + [math.sin(a) for a in row] for row in angles])
    x = torch.cat([token.double()[:, None], x], dim=1)
    if label_row is not None:
        x = torch.cat([w["label_table"][label_row][:, None], x], dim=1)
    x = x + w["positions"]

    def norm(x, name):
        return F.layer_norm(x, (c.width,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    def block(x, index, first, second):
        name = f"blocks.{index}"
        q, k, v = (norm(x, f"{name}.norm1") @ w[f"{name}.attn.qkv.weight"].T).chunk(3, dim=-1)
        outputs = []
        for head in range(heads):
            part = slice(head * c.width // heads, (head + 1) * c.width // heads)
            scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(c.width / heads)
            outputs.append(scores.softmax(-1) @ v[..., part])
        x = first * x + torch.cat(outputs, -1) @ w[f"{name}.attn.proj.weight"].T + w[f"{name}.attn.proj.bias"]
        hidden = norm(x, f"{name}.norm2") @ w[f"{name}.mlp.fc1.weight"].T + w[f"{name}.mlp.fc1.bias"]
        hidden = 0.5 * hidden * (1 + torch.erf(hidden / math.sqrt(2)))
        return second * x + hidden @ w[f"{name}.mlp.fc2.weight"].T + w[f"{name}.mlp.fc2.bias"]

    n, seen = c.depth // 2, []
    schedule = torch.linspace(1, c.shortcuts.alpha_min, 2 * (c.depth + 1), dtype=torch.float64)
    for index in range(c.depth + 1):
        if index > n:
            joined = torch.cat([x, seen.pop()], dim=-1)
            x = joined @ w[f"skips.{index - n - 1}.weight"].T + w[f"skips.{index - n - 1}.bias"]
        x = block(x, index, schedule[2 * index], schedule[2 * index + 1])
        if index < n:
            seen.append(x)
    x = norm(x, "norm") @ w["to_pixels.weight"].T + w["to_pixels.bias"]
    x = x[:, -(H // p) * (W // p) :].reshape(B, H // p, W // p, p, p, C)
    x = torch.einsum("bhwpqc->bchpwq", x).reshape(B, C, H, W)
    return F.conv2d(x, w["conv.weight"], w["conv.bias"], padding=1) if c.conv else x


@pytest.mark.parametrize("options", [{}, {"classes": 5}, {"conv": False, "channels": 4, "patch_size": 4}], ids=str)
@pytest.mark.parametrize("alpha_min", [1.0, 0.6])
@torch.no_grad()
def test_it_is_the_published_network(alpha_min, options):
    model = small_uvit(alpha_min, **options)
    images, time = batch(model.config.channels)
    labels = torch.tensor([4, 0, 2]) if model.config.classes else None
    output, expected = model(images, time, labels), reference(model, images, time, labels)
    error = float((output - expected).abs().max() / expected.abs().max())
    print(f"U-ViT alpha_min {alpha_min} {options}: relative difference {error:.1e} from a plain version")
    assert error < 1e-5


@torch.no_grad()
def test_no_label_is_the_last_row_of_the_table():
    model = small_uvit(classes=5)
    images, time = batch()
    torch.testing.assert_close(model(images, time), model(images, time, torch.full((3,), 5)), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "published", "options"),
    [
        ("uvit-small", 44, {}),
        ("uvit-mid", 131, {"image_size": (64, 64), "patch_size": 4, "channels": 3, "classes": 1000}),
        ("uvit-large", 287, {"classes": 1000}),
        ("uvit-huge", 501, {"classes": 1000}),
    ],
)
def test_sizes_are_the_published_ones(name, published, options):
    with torch.device("meta"):
        counts = {a: UViT(uvit_preset(name, shortcuts=ShortcutConfig(alpha_min=a), **options)) for a in (1.0, 0.7)}
    count, faded = (count_parameters(model) for model in counts.values())
    skips = count_parameters(counts[1.0].skips)
    print(f"{name}: {count:,} parameters, published {published} M; {skips:,} of them in the long skips")
    assert round(count / 1e6) == published and count == faded


def test_the_published_depths():
    assert {name: uvit_preset(name).blocks for name in UVIT_SIZES} == {
        "uvit-tiny": 9,
        "uvit-small": 13,
        "uvit-mid": 17,
        "uvit-large": 21,
        "uvit-huge": 29,
    }


def test_shortcuts_fade_from_the_first_block_in_to_the_last_block_out():
    record = small_uvit(0.7).shortcut_record
    assert record == {"variant": "faded", "alphas": list(alphas(5, alpha_min=0.7))}
    assert record["alphas"][0] == 1.0 and record["alphas"][-1] == 0.7
    assert small_uvit(1.0).shortcut_record["variant"] == "identity"


@torch.no_grad()
def test_features_have_names_and_each_shortcut_is_alpha_times_the_stream_plus_the_branch():
    model = small_uvit(0.6, classes=5).train()
    images, time = batch()
    features, schedule = model.features(images, time), model.shortcut_record["alphas"]
    stream = features["embed"]
    for index in range(5):
        name = f"block{index:02d}"
        stream = features[f"{name}/+skip"] if index > 2 else stream
        for kind, alpha in zip(("attn", "mlp"), schedule[2 * index :]):
            stream = alpha * stream + features[f"{name}/{kind}"]
            torch.testing.assert_close(features[f"{name}/+{kind}"], stream, rtol=1e-5, atol=1e-5)
            stream = features[f"{name}/+{kind}"]
    assert features.last_block == "block04/+mlp" and list(features)[-1] == "norm"
    assert features["embed"].shape == (3, 2 + 24, 32), "label, time, patches"
    assert torch.equal(features.pool(how="patch_mean"), features["block04/+mlp"][:, 2:].mean(1))
    assert list(model.features(images, time, torch.zeros(3).long(), only=["block02/mlp"])) == ["block02/mlp"]
    assert model.training, "the mode it was called in is restored"


def test_the_start_is_the_published_one_and_branches_start_at_zero_where_it_is_asked():
    model = UViT(uvit_preset("uvit-small", shortcuts=PLAIN), torch.Generator().manual_seed(0))
    for block in model.blocks:
        assert block.attn.qkv.bias is None
        for weight in (block.attn.qkv.weight, block.attn.proj.weight, block.mlp.fc2.weight):
            assert abs(weight.std().item() - 0.02) < 5e-4 and weight.abs().max() <= 2
    bound = 1 / math.sqrt(12)
    assert bound * 0.95 < model.patch_embed.weight.abs().max() <= bound
    faded = small_uvit(0.7, awake=False)
    assert not any(block.attn.proj.weight.any() or block.mlp.fc2.weight.any() for block in faded.blocks)
    assert uvit_preset("uvit-tiny").zero_init and not uvit_preset("uvit-tiny", shortcuts=PLAIN).zero_init
    assert uvit_preset("uvit-tiny", shortcuts=PLAIN, zero_init=True).zero_init, "a comparison can hold it equal"


def test_the_same_generator_gives_the_same_weights_and_no_other_is_used():
    state = torch.get_rng_state()
    one, two = (small_uvit(awake=False, classes=3).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("classes", [None, 4])
def test_every_parameter_receives_a_gradient(classes, generator):
    model = small_uvit(classes=classes)
    objective = DiffusionObjective(NOISE, (3, 8, 12), classes)
    labels = torch.arange(12) % 4
    objective.loss(model, torch.randn(12, 3, 8, 12, generator=generator), labels, objective.draw(12, 0, 0)).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]


def test_bfloat16_autocast_gives_a_finite_loss_near_the_float32_one(generator):
    model, objective = small_uvit(classes=4), DiffusionObjective(NOISE, (3, 8, 12), 4)
    images, labels, draws = torch.randn(8, 3, 8, 12, generator=generator), torch.arange(8) % 4, objective.draw(8, 0, 0)
    exact = objective.loss(model, images, labels, draws)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = objective.loss(model, images, labels, draws)
    loss.backward()
    assert loss.dtype == torch.float32 and abs(loss - exact) < 0.02 * exact


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["vp", "stable-diffusion"])
def test_compilation_gives_the_eager_loss(schedule, compiler, generator):
    model = small_uvit(classes=4, depth=2)
    objective = DiffusionObjective(replace(NOISE, schedule=schedule), (3, 8, 12), 4)
    module = LossModule(model, objective)
    arguments = torch.randn(8, 3, 8, 12, generator=generator), torch.arange(8) % 4, objective.draw(8, 0, 0)
    eager = module(*arguments)
    compiled = torch.compile(module, fullgraph=True)(*arguments)
    compiled.backward()
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=0)


def test_a_config_survives_json_and_refuses_nonsense():
    config = uvit_preset("uvit-mid", classes=10, image_size=(32, 16))
    assert from_dict(UViTConfig, to_dict(config)) == config
    with pytest.raises(ConfigError, match="depth is 5; allowed: an even number"):
        UViTConfig(depth=5)
    with pytest.raises(ConfigError, match=r"preset is 'uvit-smal'; .* did you mean 'uvit-small'"):
        uvit_preset("uvit-smal")
    with pytest.raises(ConfigError, match="image height is 9; allowed: a multiple of the patch size 2"):
        UViTConfig(image_size=(9, 8))


def test_wrong_inputs_are_refused():
    model, (images, time) = small_uvit(), batch()
    with pytest.raises(ValueError, match=r"images have the shape \(3, 3, 8, 8\); allowed: \(batch, \*\(3, 8, 12\)\)"):
        model(images[..., :8], time)
    with pytest.raises(ValueError, match=r"time has the shape \(2,\); allowed: \(3,\)"):
        model(images, time[:2])
    with pytest.raises(ValueError, match="labels were given to a model without classes"):
        model(images, time, torch.zeros(3).long())
