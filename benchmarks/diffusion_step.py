"""A training step of our SiT against diffusers' DiT of the same size, faded against plain, and a U-ViT beside them.

    python benchmarks/diffusion_step.py [--rounds 10] [--threads 2] [--no-compile]

Width 192, 8 blocks, 3 heads, images 32 x 32 in patches of 4, ten classes, batch 64, AdamW (fused) on every side. All
take the same interpolated images and the same squared error of the velocity. One step = zero the gradients, forward,
backward, update. All sides take turns in one process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from diffusers import DiTTransformer2DModel
from interleave import count_flops, matmul_peak, ratio, take_turns, write
from torch import Tensor, nn

from echoless.config import FlowConfig, ShortcutConfig, sit_preset, uvit_preset
from echoless.models import SiT, UViT, count_parameters
from echoless.objectives import FlowObjective, LossModule

BATCH, SHAPE, CLASSES = 64, (3, 32, 32), 10
WIDTH, HEADS = 192, 3
OBJECTIVE = FlowObjective(FlowConfig(), SHAPE, CLASSES)


class TheirLoss(nn.Module):
    """The same objective on diffusers' network, which hides labels by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.model = DiTTransformer2DModel(
            num_attention_heads=HEADS,
            attention_head_dim=WIDTH // HEADS,
            in_channels=3,
            out_channels=6,
            num_layers=8,
            sample_size=32,
            patch_size=4,
            num_embeds_ada_norm=CLASSES,
            norm_eps=1e-6,
        ).train()

    def forward(self, images: Tensor, labels: Tensor, draws: dict[str, Tensor]) -> Tensor:
        time, noise = draws["time"], draws["noise"]
        t = time[:, None, None, None]
        predicted = self.model(t * images + (1 - t) * noise, time, labels, return_dict=False)[0][:, :3]
        return F.mse_loss(predicted, images - noise)


def our_sit(alpha_min: float, long_skips: bool) -> LossModule:
    shortcuts = ShortcutConfig(alpha_min=alpha_min)
    config = sit_preset("sit-tiny", classes=CLASSES, long_skips=long_skips, shortcuts=shortcuts)
    config = replace(config, width=WIDTH, heads=HEADS)
    return LossModule(SiT(config, torch.Generator().manual_seed(0)), OBJECTIVE)


def our_uvit(alpha_min: float) -> LossModule:
    config = uvit_preset("uvit-tiny", classes=CLASSES, shortcuts=ShortcutConfig(alpha_min=alpha_min))
    config = replace(config, width=WIDTH, heads=HEADS)
    return LossModule(UViT(config, torch.Generator().manual_seed(0)), OBJECTIVE)


def step_of(module: nn.Module, images: Tensor, labels: Tensor, compiled: bool) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
    loss_of, draws = torch.compile(module) if compiled else module, OBJECTIVE.draw(BATCH, 0, 0)

    def step() -> None:
        optimiser.zero_grad()
        loss_of(images, labels, draws).backward()
        optimiser.step()

    return step


MODULES: dict[str, Callable[[], nn.Module]] = {
    "SiT, alpha 1": lambda: our_sit(1.0, False),
    "SiT, long skips, alpha 1": lambda: our_sit(1.0, True),
    "SiT, long skips, alpha_min 0.7": lambda: our_sit(0.7, True),
    "U-ViT, alpha_min 0.7": lambda: our_uvit(0.7),
    "diffusers": TheirLoss,
}
COMPILED = ("SiT, alpha 1", "U-ViT, alpha_min 0.7", "diffusers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    images = torch.randn(BATCH, *SHAPE, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(BATCH) % CLASSES
    sides = {name: step_of(make(), images, labels, compiled=False) for name, make in MODULES.items()}
    flops = {name: count_flops(step) for name, step in sides.items()}
    if not options.no_compile:
        sides |= {f"{name}, compiled": step_of(MODULES[name](), images, labels, compiled=True) for name in COMPILED}

    seconds = take_turns(sides, options.rounds)
    record = report(seconds, flops, matmul_peak())
    print(f"written: {write('diffusion_step', {'rounds': options.rounds, **record}).name}")


def report(seconds: dict[str, list[float]], flops: dict[str, int], peak: float) -> dict[str, object]:
    sides, record = {}, {"peak_gflops": peak / 1e9}
    print(f"matmul peak {peak / 1e9:.0f} GFLOP/s\n")
    print(f"{'side':42}{'M params':>9}{'GFLOP':>7}{'ms':>7}{'img/s':>7}{'% peak':>8}{'x diffusers (quartiles)':>26}")
    for name in seconds:
        kind = name.removesuffix(", compiled")
        theirs = "diffusers" + name.removeprefix(kind)  # eager against eager, compiled against compiled
        middle, low, high = ratio(seconds, name, theirs)
        median = sorted(seconds[name])[len(seconds[name]) // 2]
        parameters = count_parameters(MODULES[kind]())
        sides[name] = {"seconds": median, "ratio": middle, "quartiles": [low, high], "flops": flops[kind]}
        spread = f"{middle:.2f} ({low:.2f} .. {high:.2f})"
        print(
            f"{name:42}{parameters / 1e6:9.2f}{flops[kind] / 1e9:7.1f}{median * 1e3:7.0f}{BATCH / median:7.0f}"
            f"{flops[kind] / median / peak:8.0%}{spread:>26}"
        )
    middle, low, high = ratio(seconds, "SiT, long skips, alpha 1", "SiT, long skips, alpha_min 0.7")
    record["fading"] = middle
    print(f"fading: {middle:.3f} of the time without it ({low:.3f} .. {high:.3f})")
    if "diffusers, compiled" in seconds:
        record["compiled against their eager"] = ratio(seconds, "SiT, alpha 1, compiled", "diffusers")[0]
        print(f"our SiT compiled against diffusers eager: {record['compiled against their eager']:.2f}")
    return {**record, "sides": sides}


if __name__ == "__main__":
    main()
