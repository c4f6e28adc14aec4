"""A training step of our masked autoencoder against transformers' ViTMAE of the same size, and faded against plain.

    python benchmarks/mae_step.py [--rounds 10] [--threads 2] [--compile none|ours|all]

Compiling takes one to two minutes a side; "ours" leaves out the compiled peer, whom the goals do not name.

Encoder 192 x 12, decoder 128 x 6, images 32 x 32 in patches of 4, batch 128, three quarters hidden, AdamW (fused) on
both sides. One step = zero the gradients, forward, backward, update. All sides take turns in one process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from interleave import count_flops, matmul_peak, ratio, take_turns, write
from transformers import ViTMAEConfig, ViTMAEForPreTraining

from echoless.config import MaskedConfig, mae_preset
from echoless.models import MAE
from echoless.objectives import masked_loss, random_masking

BATCH = 128
OBJECTIVE = MaskedConfig()


def optimiser_for(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.05, fused=True)


def our_step(images: torch.Tensor, alpha_min: float, decoder: str, compiled: bool) -> Callable[[], None]:
    model = MAE(mae_preset("tiny-32", alpha_min=alpha_min, decoder=decoder), torch.Generator().manual_seed(0))
    optimiser, generator = optimiser_for(model), torch.Generator().manual_seed(1)
    loss_of = torch.compile(masked_loss) if compiled else masked_loss

    def step() -> None:
        masking = random_masking(BATCH, 64, OBJECTIVE.mask_ratio, generator)
        optimiser.zero_grad()
        loss_of(model, images, masking, OBJECTIVE).backward()
        optimiser.step()

    return step


def their_step(images: torch.Tensor, compiled: bool) -> Callable[[], None]:
    config = ViTMAEConfig(
        image_size=32,
        patch_size=4,
        hidden_size=192,
        num_hidden_layers=12,
        num_attention_heads=3,
        intermediate_size=768,
        decoder_hidden_size=128,
        decoder_num_hidden_layers=6,
        decoder_num_attention_heads=4,
        decoder_intermediate_size=512,
        norm_pix_loss=True,
        layer_norm_eps=1e-6,
    )
    model = ViTMAEForPreTraining(config).train()
    optimiser = optimiser_for(model)
    forward = torch.compile(model) if compiled else model

    def step() -> None:
        optimiser.zero_grad()
        forward(images).loss.backward()
        optimiser.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", choices=("none", "ours", "all"), default="all")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    images = torch.randn(BATCH, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    sides = {
        "plain decoder, alpha 1": our_step(images, 1.0, "plain", False),
        "long skips, alpha 1": our_step(images, 1.0, "long_skips", False),
        "long skips, alpha_min 0.6": our_step(images, 0.6, "long_skips", False),
        "transformers": their_step(images, False),
    }
    if options.compile != "none":
        sides |= {
            "plain decoder, alpha 1, compiled": our_step(images, 1.0, "plain", True),
            "long skips, alpha 1, compiled": our_step(images, 1.0, "long_skips", True),
            "long skips, alpha_min 0.6, compiled": our_step(images, 0.6, "long_skips", True),
        }
    if options.compile == "all":
        sides["transformers, compiled"] = their_step(images, True)
    flops, their_flops = count_flops(sides["plain decoder, alpha 1"]), count_flops(sides["transformers"])

    seconds = take_turns(sides, options.rounds)
    peak = matmul_peak()
    record = {
        "rounds": options.rounds,
        "peak_gflops": peak / 1e9,
        "flops": flops,
        "their_flops": their_flops,
        "sides": {},
    }
    print(
        f"matmul peak {peak / 1e9:.0f} GFLOP/s; a step is {flops / 1e9:.1f} GFLOP here, {their_flops / 1e9:.1f} there\n"
    )
    print(f"{'side':38}{'ms':>7}{'img/s':>8}{'x transformers eager (quartiles)':>36}{'% peak':>8}")
    for name in sides:
        middle, low, high = ratio(seconds, name, "transformers")
        fastest = sorted(seconds[name])[len(seconds[name]) // 2]
        share = flops / fastest / peak if name.startswith("plain") else float("nan")
        record["sides"][name] = {"seconds": fastest, "ratio": middle, "quartiles": [low, high], "share_of_peak": share}
        spread = f"{middle:.2f} ({low:.2f} .. {high:.2f})"
        print(f"{name:38}{fastest * 1e3:7.0f}{BATCH / fastest:8.0f}{spread:>36}{share:8.0%}")
    for suffix in ("", ", compiled")[: 1 if options.compile == "none" else 2]:
        faded, plain = f"long skips, alpha_min 0.6{suffix}", f"long skips, alpha 1{suffix}"
        middle, low, high = ratio(seconds, plain, faded)
        record[f"fading{suffix}"] = middle
        print(f"\nfading{suffix}: {middle:.3f} of the time without it ({low:.3f} .. {high:.3f})", end="")
    print(f"\nwritten: {write('mae_step', record).name}")


if __name__ == "__main__":
    main()
