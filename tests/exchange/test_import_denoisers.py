"""Imported diffusion transformers compute what their own code computes, and are runs of ours afterwards.

The references are modules written here with the published names (U-ViT, SiT / DiT), and diffusers' DiT.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.cli.main import main
from echoless.config import DiffusionConfig, FlowConfig, RunConfig, SiTConfig, UViTConfig, from_dict
from echoless.errors import ConfigError, UntrustedFile
from echoless.exchange import import_checkpoint
from echoless.models import SiT, UViT
from echoless.objectives import DiffusionObjective
from echoless.runs import find_latest_valid, load_checkpoint, load_weights

WIDTH, HEADS, PATCH, SIDE = 48, 3, 2, 4


class Attention(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH, bias=bias), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.mT / math.sqrt(WIDTH / HEADS)).softmax(-1) @ v
        return self.proj(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, approximate: str) -> None:
        super().__init__()
        self.fc1, self.fc2, self.approximate = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH), approximate

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate=self.approximate))


class Patches(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, WIDTH, PATCH, stride=PATCH)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)


def waves(time: Tensor, width: int) -> Tensor:
    half = width // 2
    angles = time[:, None] * torch.exp(-math.log(10_000) * torch.arange(half).float() / half)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def joined(patches: Tensor, channels: int) -> Tensor:
    cut = patches.reshape(len(patches), SIDE, SIDE, PATCH, PATCH, channels)
    return torch.einsum("nhwpqc->nchpwq", cut).reshape(len(patches), channels, SIDE * PATCH, SIDE * PATCH)


# --- U-ViT, with the names of its published code ---


class UViTBlock(nn.Module):
    def __init__(self, skip: bool) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(WIDTH), Attention(bias=False)
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), MLP("none")
        if skip:
            self.skip_linear = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        if skip is not None:
            x = self.skip_linear(torch.cat([x, skip], dim=-1))
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PublishedUViT(nn.Module):
    def __init__(self, classes: int | None, conv: bool, channels: int = 3) -> None:
        super().__init__()
        self.patch_embed, self.channels = Patches(channels), channels
        extra = 1 if classes is None else 2
        self.pos_embed = nn.Parameter(torch.zeros(1, extra + SIDE**2, WIDTH))
        if classes is not None:
            self.label_emb = nn.Embedding(classes, WIDTH)
        self.in_blocks = nn.ModuleList(UViTBlock(False) for _ in range(2))
        self.mid_block = UViTBlock(False)
        self.out_blocks = nn.ModuleList(UViTBlock(True) for _ in range(2))
        self.norm, self.decoder_pred = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, PATCH**2 * channels)
        if conv:
            self.final_layer = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor, labels: Tensor | None = None) -> Tensor:
        x = torch.cat([waves(time, WIDTH)[:, None], self.patch_embed(x)], dim=1)
        if labels is not None:
            x = torch.cat([self.label_emb(labels)[:, None], x], dim=1)
        x, kept = x + self.pos_embed, []
        for block in self.in_blocks:
            x = block(x)
            kept.append(x)
        x = self.mid_block(x)
        for block in self.out_blocks:
            x = block(x, kept.pop())
        x = joined(self.decoder_pred(self.norm(x))[:, -(SIDE**2) :], self.channels)
        return self.final_layer(x) if hasattr(self, "final_layer") else x


# --- SiT and DiT, with the names of their published code ---


class Wrapped(nn.Module):
    """A submodule under a name."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class SiTBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.mlp = Attention(bias=True), MLP("tanh")
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = (m[:, None] for m in self.adaLN_modulation(c).chunk(6, dim=1))
        x = x + gate1 * self.attn(F.layer_norm(x, (WIDTH,), eps=1e-6) * (1 + scale1) + shift1)
        return x + gate2 * self.mlp(F.layer_norm(x, (WIDTH,), eps=1e-6) * (1 + scale2) + shift2)


class PublishedSiT(nn.Module):
    def __init__(self, rows: int = 6, channels: int = 4) -> None:
        super().__init__()
        self.channels, self.x_embedder = channels, Patches(channels)
        mlp = nn.Sequential(nn.Linear(256, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.t_embedder = Wrapped(mlp=mlp)
        self.y_embedder = Wrapped(embedding_table=nn.Embedding(rows, WIDTH))
        self.pos_embed = nn.Parameter(torch.zeros(1, SIDE**2, WIDTH))
        self.blocks = nn.ModuleList(SiTBlock() for _ in range(3))
        modulation = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 2 * WIDTH))
        self.final_layer = Wrapped(linear=nn.Linear(WIDTH, PATCH**2 * 2 * channels), adaLN_modulation=modulation)

    def forward(self, x: Tensor, time: Tensor, labels: Tensor) -> Tensor:
        c = self.t_embedder.mlp(waves(time, 256)) + self.y_embedder.embedding_table(labels)
        x = self.x_embedder(x) + self.pos_embed
        for block in self.blocks:
            x = block(x, c)
        shift, scale = (m[:, None] for m in self.final_layer.adaLN_modulation(c).chunk(2, dim=1))
        x = self.final_layer.linear(F.layer_norm(x, (WIDTH,), eps=1e-6) * (1 + scale) + shift)
        return joined(x, 2 * self.channels)[:, : self.channels]


def shaken(model: nn.Module) -> nn.Module:
    """Every weight matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            start = 1.0 if "norm" in name and name.endswith("weight") and parameter.ndim == 1 else 0.0
            parameter.copy_(start + 0.15 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def batch(channels: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(3, channels, SIDE * PATCH, SIDE * PATCH, generator=generator)
    return images, torch.tensor([0.5, 333.0, 998.0]), torch.tensor([4, 0, 2])


def network_of(folder: Path) -> UViT | SiT:
    """From the encoder folder; the checkpoint for --init must hold the same."""
    weights = load_weights(folder / "encoder")
    kind, config = {"uvit": (UViT, UViTConfig), "sit": (SiT, SiTConfig)}[weights.config["kind"]]
    network = kind(from_dict(config, weights.config["model"]))
    network.load_state_dict(weights.tensors)
    found = find_latest_valid(folder / "checkpoints")
    checkpoint = load_checkpoint(found.path)
    run = from_dict(RunConfig, checkpoint.manifest["config"])
    assert run.model == network.config and found.step == 0
    assert all(torch.equal(checkpoint.tensors["model"][name], value) for name, value in weights.tensors.items())
    return network.eval()


def assert_same(ours: Tensor, theirs: Tensor, what: str) -> None:
    error = float((ours - theirs).abs().max() / theirs.abs().max())
    print(f"{what}: relative difference {error:.1e} from its own code")
    assert error < 1e-5


@torch.no_grad()
@pytest.mark.parametrize(
    ("rows", "conv", "channels", "classes", "schedule"),
    [(None, True, 3, None, "vp"), (6, False, 4, 5, "stable-diffusion"), (5, True, 3, 5, "vp")],
)
def test_a_published_uvit(rows, conv, channels, classes, schedule, tmp_path):
    theirs = shaken(PublishedUViT(rows, conv, channels))
    torch.save(theirs.state_dict(), tmp_path / "nnet_ema.pth")
    given = {} if rows != classes or rows is None else {"classes": classes}
    report = import_checkpoint(tmp_path / "nnet_ema.pth", tmp_path / "out", heads=HEADS, **given)
    ours = network_of(tmp_path / "out")
    images, time, labels = batch(channels)
    labels = None if rows is None else labels
    assert_same(ours(images, time, labels), theirs(images, time, labels), f"U-ViT {rows} rows, conv {conv}")
    assert ours.config.classes == classes and ours.config.conv == conv and ours.config.depth == 4
    assert (ours.config.shortcuts.variant, ours.config.shortcuts.alpha_min) == ("identity", 1.0), "it is not faded"
    described = load_weights(tmp_path / "out" / "encoder").config
    assert from_dict(DiffusionConfig, described["objective"]).schedule == schedule
    assert described["mean"] == ([0.5] * 3 if channels == 3 else [0.0] * 4)
    if rows == classes and rows is not None:
        assert "no null-label row" in str(report)
        assert torch.allclose(ours.label_table[-1], theirs.label_emb.weight.mean(0))


@torch.no_grad()
def test_a_published_sit_and_the_averaged_weights_are_taken(tmp_path):
    theirs = shaken(PublishedSiT())
    raw = {name: value + 1 for name, value in theirs.state_dict().items()}
    torch.save({"model": raw, "ema": theirs.state_dict(), "opt": {"state": {}}}, tmp_path / "sit.pt")
    with pytest.raises(ConfigError, match=r"give --objective velocity for a SiT .*, --objective ddpm for a DiT"):
        import_checkpoint(tmp_path / "sit.pt", tmp_path / "out", heads=HEADS)
    report = import_checkpoint(tmp_path / "sit.pt", tmp_path / "out", heads=HEADS, objective="velocity")
    assert set(report.dropped) == {"model", "opt"}
    ours = network_of(tmp_path / "out")
    images, time, labels = batch(4)
    assert_same(ours(images, time / 999, labels), theirs(images, time / 999, labels), "SiT")
    assert ours.config.classes == 5 and ours.config.learn_sigma and not ours.config.long_skips
    described = load_weights(tmp_path / "out" / "encoder").config
    assert from_dict(FlowConfig, described["objective"]) == FlowConfig()


@torch.no_grad()
def test_a_published_dit_counts_its_steps_from_zero(tmp_path):
    """Its network is given 0 for the least noisy of a thousand steps, and 999 for the noisiest."""
    theirs = shaken(PublishedSiT())
    torch.save(theirs.state_dict(), tmp_path / "dit.pt")
    import_checkpoint(tmp_path / "dit.pt", tmp_path / "out", heads=HEADS, objective="ddpm")
    ours = network_of(tmp_path / "out")
    images, time, labels = batch(4)
    assert_same(ours(images, time, labels), theirs(images, time, labels), "DiT")
    config = from_dict(DiffusionConfig, load_weights(tmp_path / "out" / "encoder").config["objective"])
    objective = DiffusionObjective(config, (4, 8, 8), 5)
    times = objective.training_time(torch.tensor([0.0, 0.5, 0.9999]))
    assert objective.network_time(times).tolist() == [0, 500, 999]
    betas = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
    expected = (1 - betas).cumprod(0).sqrt()[[0, 500, 999]]
    torch.testing.assert_close(objective.path.at(times.double()).a, expected, rtol=1e-6, atol=0)


@torch.no_grad()
def test_a_dit_folder_of_diffusers(tmp_path):
    from diffusers import DiTTransformer2DModel

    theirs = DiTTransformer2DModel(
        num_attention_heads=HEADS,
        attention_head_dim=WIDTH // HEADS,
        in_channels=4,
        out_channels=8,
        num_layers=3,
        sample_size=SIDE * PATCH,
        patch_size=PATCH,
        num_embeds_ada_norm=5,
        norm_eps=1e-6,
    )
    shaken(theirs)
    state = theirs.state_dict()
    for name in state:  # as published: one embedding of time and label, copied into every block
        if ".norm1.emb." in name:
            state[name] = state["transformer_blocks.0." + name.split(".", 2)[2]]
    theirs.load_state_dict(state)
    theirs.save_pretrained(tmp_path / "dit")
    report = import_checkpoint(tmp_path / "dit", tmp_path / "out")
    assert "a DiT of diffusers: width 48, 3 blocks, 3 heads, patch 2 at 8 x 8" in str(report)
    ours = network_of(tmp_path / "out")
    images, time, labels = batch(4)
    expected = theirs(images, time, labels).sample[:, :4]
    assert_same(ours(images, time, labels), expected, "diffusers' DiT")
    described = load_weights(tmp_path / "out" / "encoder").config
    assert described["objective"]["schedule"] == "ddpm" and described["objective"]["first_step"] == 0
    # An embedding that differs from block to block is another network.
    state["transformer_blocks.2.norm1.emb.timestep_embedder.linear_1.bias"] = torch.ones(WIDTH)
    theirs.load_state_dict(state)
    theirs.save_pretrained(tmp_path / "other")
    with pytest.raises(UntrustedFile, match="differs from that of the first block"):
        import_checkpoint(tmp_path / "other", tmp_path / "out2")


def test_what_does_not_fit_is_refused_by_name_and_leaves_nothing(tmp_path):
    uvit, sit = shaken(PublishedUViT(6, True)).state_dict(), shaken(PublishedSiT()).state_dict()
    lacking = {name: value for name, value in uvit.items() if name != "in_blocks.1.norm2.bias"}
    cases = [
        ("the weights have an unexpected 'context_embed.weight'", {**uvit, "context_embed.weight": torch.ones(3)}, {}),
        ("the weights lack 'in_blocks.1.norm2.bias'", lacking, {}),
        (r"blocks.1.attn.proj.bias has the shape \(7,\)", {**uvit, "in_blocks.1.attn.proj.bias": torch.ones(7)}, {}),
        ("the patch convolution has the shape", {**uvit, "patch_embed.proj.weight": torch.ones(WIDTH)}, {}),
        ("holds numbers that are not finite", {**sit, "pos_embed": sit["pos_embed"] * math.nan}, {"objective": "ddpm"}),
        ("is not a SiT or DiT as published", {**sit, "pos_embed": torch.tensor(1.0)}, {"objective": "ddpm"}),
    ]  # fmt: skip
    for reason, state, options in cases:
        torch.save(state, tmp_path / "bad.pth")
        with pytest.raises(UntrustedFile, match=reason):
            import_checkpoint(tmp_path / "bad.pth", tmp_path / "out", heads=HEADS, **options)
    assert not list(tmp_path.glob("out*"))


def test_what_the_file_does_not_say_is_asked_for(tmp_path):
    torch.save(shaken(PublishedUViT(6, True)).state_dict(), tmp_path / "uvit.pth")
    cases = [
        ({}, "how many heads its network of width 48 has; give --heads"),
        ({"heads": 3, "objective": "velocity"}, "objective is 'velocity'; allowed for a U-ViT: vp, stable-diffusion"),
        ({"heads": 3, "classes": 4}, "classes is 4 and the file has 6 rows of labels; allowed: 5, 6"),
        ({"heads": 3, "alpha_min": 0.7}, "alpha_min is 0.7, but published diffusion transformers are plain"),
    ]
    for options, reason in cases:
        with pytest.raises(ConfigError, match=reason):
            import_checkpoint(tmp_path / "uvit.pth", tmp_path / "out", **options)


def test_the_verb_says_what_was_found_and_what_was_assumed(tmp_path, capsys):
    torch.save(shaken(PublishedUViT(6, True)).state_dict(), tmp_path / "uvit.pth")
    assert main(["import", str(tmp_path / "uvit.pth"), "--out", str(tmp_path / "out"), "--heads", "3"]) == 0
    printed = capsys.readouterr().out
    assert "read a U-ViT as published: width 48, 5 blocks, 3 heads, patch 2 at 8 x 8, 3 channels" in printed
    assert "assumed: row 6 of the label table is the null label" in printed
    assert "also in evaluate, embed and sample" in printed
    assert json.loads((tmp_path / "out" / "import.json").read_text())["family"] == "a U-ViT as published"
