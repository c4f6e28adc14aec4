"""A training step of a transformers ViT with faded shortcuts against the same model as it came, eager and compiled.

    python benchmarks/fade.py [--rounds 60] [--no-compile]

ViT of width 192 and depth 12, images 64 x 64 in patches of 8, batch 8, AdamW (fused), one thread. One step = zero the
gradients, forward, backward, update. All sides take turns in one process, each with its own copy of the same weights.
Processor time is counted, not time on the wall, because other work on the machine disturbs it less; the figure is the
median over rounds of faded / plain. "Plain again" is a second copy of the plain model: it says how far two equal
sides differ on this machine. The goal is an overhead of at most 2 %.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Mapping

import torch
from interleave import ratio, write
from transformers import ViTConfig, ViTModel

from echoless.shortcuts import fade

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


def processor_seconds(sides: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Of every call, one call of each side in turn; another side begins every round."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for index in range(-3, rounds):  # three to warm up
        first = index % len(names)
        for name in names[first:] + names[:first]:
            start = time.process_time()
            sides[name]()
            if index >= 0:
                seconds[name].append(time.process_time() - start)
    return seconds


def measure(images: torch.Tensor, compiled: bool, rounds: int) -> dict[str, object]:
    plain = vit()
    faded = copy.deepcopy(plain)
    fade(faded, ALPHA_MIN, example=images[:2])
    sides = {"plain": plain, "faded": faded, "plain again": copy.deepcopy(plain)}
    seconds = processor_seconds({name: step_of(model, images, compiled) for name, model in sides.items()}, rounds)
    cost, low, high = ratio(seconds, ours="plain", theirs="faded")
    noise, noise_low, noise_high = ratio(seconds, ours="plain", theirs="plain again")
    mode = "compiled" if compiled else "eager"
    print(f"fade {mode}: faded / plain = {cost:.4f} (quartiles {low:.4f} to {high:.4f}), goal at most {GOAL}")
    print(f"fade {mode}: plain again / plain = {noise:.4f} (quartiles {noise_low:.4f} to {noise_high:.4f})")
    return {
        "faded_over_plain": cost,
        "quartiles": [low, high],
        "plain_again_over_plain": noise,
        "plain_again_quartiles": [noise_low, noise_high],
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    images = torch.randn(BATCH, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    results: dict[str, object] = {"goal": GOAL, "eager": measure(images, compiled=False, rounds=options.rounds)}
    if not options.no_compile:
        results["compiled"] = measure(images, compiled=True, rounds=options.rounds)
    write("fade", results)


if __name__ == "__main__":
    main()
