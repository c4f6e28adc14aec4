"""A run small enough to be killed a hundred times: a 64 x 6 encoder on a few drawn shapes. Not a test itself."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

from echoless.config import (
    DataConfig,
    DiffusionConfig,
    DINOConfig,
    DistillationConfig,
    FlowConfig,
    InfoNCEConfig,
    MoCoConfig,
    OptimConfig,
    RunConfig,
    RuntimeConfig,
    ShortcutConfig,
    SiTConfig,
    UViTConfig,
    mae_preset,
)
from echoless.data import Images, measure_statistics, open_images
from echoless.reports.datasheet import show_data
from echoless.runs import open_run
from echoless.runtime import StopRequest, join_team, leave_team
from echoless.training.launch import Launch, Workplace, launch


def tiny_images(count: int = 96) -> Images:
    return open_images(f"shapes:{count}")


def tiny_config(images: Images, *, steps: int = 40, alpha_min: float = 0.6, ema: float | None = 0.9) -> RunConfig:
    model = mae_preset("tiny-32", patch_size=8, alpha_min=alpha_min)
    model = replace(
        model,
        encoder=replace(model.encoder, width=64, depth=6, heads=2),
        decoder_width=32,
        decoder_depth=2,
        decoder_heads=2,
    )
    statistics = measure_statistics(images)
    return RunConfig(
        recipe="shapes",
        model=model,
        data=DataConfig(
            path="shapes", fingerprint=images.fingerprint, count=len(images), mean=statistics.mean, std=statistics.std
        ),
        optim=OptimConfig(base_lr=2e-2, ema=ema),
        steps=steps,
        batch_size=8,
    )


def tiny_comparison(images: Images, recipe: str, *, steps: int = 40, **shortcuts) -> RunConfig:
    """A run that compares views, "infonce" or "dino", as small as the others here."""
    config = tiny_config(images, steps=steps, ema=None)
    encoder = replace(config.model.encoder, final_norm=True, zero_init=False)
    encoder = replace(encoder, shortcuts=replace(encoder.shortcuts, **shortcuts))
    if recipe == "infonce":
        model, objective = MoCoConfig(encoder=encoder, hidden=32, output=16), InfoNCEConfig()
    else:
        model = DINOConfig(encoder=encoder, hidden=32, bottleneck=16, prototypes=32)
        objective = DistillationConfig(local_views=2, freeze_prototypes=0.2, local_side=0.5)
    return replace(config, recipe=recipe, model=model, objective=objective)


def tiny_diffusion(images: Images, kind: str, *, steps: int = 40, alpha_min: float = 0.7) -> RunConfig:
    """A diffusion model, "uvit" (noise) or "sit" (velocity), told the class, with averaged weights."""
    sizes = {"patch_size": 8, "channels": 3, "width": 32, "heads": 2, "classes": 10}
    sizes |= {"shortcuts": ShortcutConfig(alpha_min=alpha_min)}
    model, objective = {
        "uvit": (UViTConfig(depth=2, **sizes), DiffusionConfig()),
        "sit": (SiTConfig(depth=4, **sizes), FlowConfig()),
    }[kind]
    config = tiny_config(images, steps=steps)
    data = replace(config.data, mean=(0.5,) * 3, std=(0.5,) * 3, crop_scale=None)
    return replace(config, recipe=f"{kind}-tiny", model=model, objective=objective, data=data)


def tiny_foreign(images: Images, *, steps: int = 40) -> RunConfig:
    """A masked autoencoder around a body as DINOv3 has it, which fades in."""
    config = tiny_config(images, steps=steps)
    named = {"registers": 2, "positions": "rotary", "layer_scale": 1.0, "gated_mlp": True, "activation": "silu"}
    encoder = replace(config.model.encoder, final_norm=True, **named)
    return replace(config, model=replace(config.model, encoder=encoder), fade_in=0.5)


def tiny_family(images: Images, name: str, *, steps: int = 40) -> RunConfig:
    """The tiny run of an objective: masked, infonce, dino, uvit or sit; or of a foreign body."""
    if name in ("masked", "foreign"):
        return (tiny_config if name == "masked" else tiny_foreign)(images, steps=steps)
    make = tiny_diffusion if name in ("uvit", "sit") else tiny_comparison
    return make(images, name, steps=steps)


def tiny_run(
    out: Path, images: Images, config: RunConfig, *, resume: bool = False, overwrite: bool = False, **runtime
) -> bool:
    """What `echoless pretrain` does once its config is settled."""
    torch.set_num_threads(1)
    options = {"checkpoint_every": 4, "log_every": 1, "workers": 0} | runtime
    team = join_team("cpu")
    run = None
    try:
        with StopRequest() as stop:
            run = open_run(out, resume=resume, overwrite=overwrite) if team.leads else None
            team.wait()
            if run is not None:
                show_data(run, images, config.model.image_size)
            place = Workplace(out=out, run=run, stop=stop, team=team)
            runtime = RuntimeConfig(**options)
            return launch(Launch(config=config, runtime=runtime, images=images, place=place, resume=resume))
    finally:
        if run is not None:
            run.close()
        leave_team()


def fingerprint(out: Path, step: int) -> dict[str, str]:
    """SHA-256 of every file of a checkpoint and of the encoder, and of the losses that were logged."""
    files = [*sorted((out / "checkpoints" / f"step-{step:08d}").iterdir()), *sorted((out / "encoder").iterdir())]
    hashes = {f"{file.parent.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    kept = [[line.get(key) for key in ("step", "loss", "lr", "gradient_norm", "rank_paper")] for line in lines]
    return hashes | {"log": hashlib.sha256(json.dumps(kept).encode()).hexdigest()}


def silence() -> None:
    """For forked children: their progress is nobody's business."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stderr.fileno())
    os.dup2(null, sys.stdout.fileno())
