"""A training step of a transformers ViT with faded shortcuts against the same model as it came, eager and compiled.

    python benchmarks/patch.py [--rounds 60] [--threads 1] [--no-compile]

ViT of width 192 and depth 12, images 64 x 64 in patches of 8, batch 8, AdamW (fused). One step = zero the gradients,
forward, backward, update. All sides take turns in one process, each with its own copy of the same weights. "Plain
again" is a second copy of the unpatched model: it says how far two equal sides differ on this machine. The figure is
the ratio of the fastest steps, which other work on the machine disturbs least; medians are kept beside it. The goal is
an overhead of at most 2 %.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable

import torch
from interleave import ratio, take_turns, write
from transformers import ViTConfig, ViTModel

from echoless.shortcuts import decay_shortcuts

BATCH, SIZE = 8, 64
ALPHA_MIN = 0.6
GOAL = 1.02


def vit() -> ViTModel:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=192,
        num_hidden_layers=12,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=SIZE,
        patch_size=8,
    )
    return ViTModel(config, add_pooling_layer=False)


def step_of(model: torch.nn.Module, images: torch.Tensor, compiled: bool) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model, fullgraph=True) if compiled else model

    def step() -> None:
        optimiser.zero_grad()
        forward(images).last_hidden_state.square().mean().backward()
        optimiser.step()

    return step


def measure(images: torch.Tensor, compiled: bool, rounds: int) -> dict[str, object]:
    plain = vit()
    faded = copy.deepcopy(plain)
    decay_shortcuts(faded, ALPHA_MIN, example=images[:2])
    sides = {"plain": plain, "faded": faded, "plain again": copy.deepcopy(plain)}
    seconds = take_turns({name: step_of(model, images, compiled) for name, model in sides.items()}, rounds)
    best = {name: min(times) for name, times in seconds.items()}
    cost, noise = best["faded"] / best["plain"], best["plain again"] / best["plain"]
    median, low, high = ratio(seconds, ours="plain", theirs="faded")
    mode = "compiled" if compiled else "eager"
    print(f"patch {mode}: faded / plain = {cost:.4f}, plain again / plain = {noise:.4f}, goal at most {GOAL}")
    print(f"patch {mode}: median of rounds {median:.4f} (quartiles {low:.4f} to {high:.4f})")
    return {
        "faded_over_plain": cost,
        "plain_again_over_plain": noise,
        "median": median,
        "quartiles": [low, high],
        "best_step_seconds": best,
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    images = torch.randn(BATCH, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    results: dict[str, object] = {"goal": GOAL, "eager": measure(images, compiled=False, rounds=options.rounds)}
    if not options.no_compile:
        results["compiled"] = measure(images, compiled=True, rounds=options.rounds)
    write("patch", results)


if __name__ == "__main__":
    main()
