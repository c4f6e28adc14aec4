"""How does a run continue from trained weights (--init)? With their encoder, and all else from the recipe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from echoless.config import MaskedConfig, OptimConfig, RunConfig, mae_preset, with_body
from echoless.config.facts import DataFacts, Recipe, StartFacts, fitted, steps_for
from echoless.config.options import PretrainOptions
from echoless.errors import ConfigError

CONTINUE = "continue"
HEAD = 32  # width of a head of the decoder


def continued(facts: DataFacts) -> RunConfig:
    """A masked autoencoder around an encoder that is already trained: DINOv2, DINOv3, MAE, ViT, or a run.

    echoless pretrain DATA --out RUN --init FOLDER
    The encoder, its image size and its normalisation come from the weights, the shortcuts too; --alpha-min fades them.
    The decoder has the width of the encoder, up to 512, and half its depth, up to 8; those of a ViTMAE, or of a masked
    autoencoder trained here, are taken over, and so is the loss.
    Cost: 100 epochs; without a GPU, one hour or as long as --time says.
    """
    batch = 128 if facts.count >= 1024 else max(1, min(128, facts.count // 8))
    return RunConfig(
        recipe=CONTINUE,
        model=mae_preset("small", channels=facts.channels, alpha_min=1.0),
        objective=MaskedConfig(mask_ratio=0.75, normalize_pixels=True),
        optim=OptimConfig(base_lr=1.5e-4, betas=(0.9, 0.95), weight_decay=0.05, warmup=0.05, clip=1.0),
        batch_size=batch,
        steps=steps_for(100, facts.count, batch),
    )


def adopted(config: RunConfig, start: StartFacts, options: PretrainOptions) -> RunConfig:
    """The recipe's config around the encoder of the weights; whatever the user gives is applied afterwards."""
    if start.body.kind != config.model.body.kind:
        raise ConfigError(
            f"--init {start.name} holds a {start.body.kind}, but recipe {config.recipe} trains a "
            f"{config.model.body.kind}; give the --recipe of its kind"
        )
    if start.body.kind != "vit":
        return config
    own: Any = config.model.body
    # How weights are initialised: of the decoder, here.
    body = replace(start.body, zero_init=own.zero_init, init_scheme=own.init_scheme, init_constants=own.init_constants)
    if config.recipe != CONTINUE:
        body = replace(body, shortcuts=own.shortcuts)
    if config.model.kind == "classifier":  # the head has a norm of its own
        body = replace(body, final_norm=body.final_norm and own.final_norm)
    if config.recipe != CONTINUE and not start.foreign:
        body = replace(body, image_size=fitted(own.image_size, body.patch_size))
    config = replace(config, model=_around(config, body, start, options))
    if config.recipe == CONTINUE and start.objective is not None:
        config = replace(config, objective=start.objective)
    if not start.foreign:
        return config
    return replace(config, data=replace(config.data, mean=start.mean, std=start.std))


def _around(config: RunConfig, body: Any, start: StartFacts, options: PretrainOptions) -> Any:
    """The model of the recipe around this body."""
    model: Any = with_body(config.model, body)
    if model.kind == "dino" and start.head is not None:
        return replace(model, **dict(zip(("hidden", "bottleneck", "prototypes"), start.head)))
    if config.recipe != CONTINUE:
        return model
    decoder_given = any(value is not None for value in (options.decoder, options.decoder_depth, options.taps))
    if start.model is not None and not decoder_given:
        return replace(start.model, encoder=replace(body, zero_init=start.model.encoder.zero_init))
    width = max(HEAD, min(512, body.width) // HEAD * HEAD)
    depth = max(1, min(8, body.depth // 2))
    return replace(model, decoder_width=width, decoder_depth=depth, decoder_heads=width // HEAD)


CONTINUING: dict[str, Recipe] = {CONTINUE: continued}
