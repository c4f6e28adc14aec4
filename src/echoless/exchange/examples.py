"""What could go into a model that somebody else wrote? Example inputs made from its signature and its config.

Nobody can know every model's arguments: each function offers a few candidates, and the first that runs is taken.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from echoless.errors import ConfigError
from echoless.randomness import generator_for

Example = dict[str, Any] | tuple[Tensor, ...]
BATCH = 2  # batch norm in training mode wants more than one
WORDS = 16  # tokens of text
LARGEST_SIDE = 64  # of the inputs of networks that take any size


def first_that_runs(model: nn.Module, candidates: Iterable[Example]) -> Example:
    """The first example on which one forward in eval mode succeeds."""
    reasons = []
    training = model.training
    model.eval()
    try:
        for example in candidates:
            try:
                with torch.no_grad():
                    model(**example) if isinstance(example, dict) else model(*example)
                return example
            except Exception as error:  # whatever a model says about an input it does not take
                reasons.append(" ".join(str(error).split())[:200])
    finally:
        model.train(training)
    because = f": {reasons[0]}" if reasons else ""
    raise ConfigError(
        f"no example input could be made up for {type(model).__name__}{because}; in Python, "
        "fade(model, example=...) takes one of yours"
    )


def image_examples(channels: int, sizes: Iterable[tuple[int, int]]) -> Iterator[Example]:
    for size in sizes:
        yield (_noise(BATCH, channels, *size),)


def transformers_examples(model: nn.Module) -> Iterator[Example]:
    """Images, text, sound: everything the forward has an argument for, then each alone."""
    config, names = model.config, inspect.signature(model.forward).parameters
    parts: dict[str, Tensor] = {}
    if "pixel_values" in names:
        vision = getattr(config, "vision_config", config)
        height, width = _pair(getattr(vision, "image_size", None) or 224)
        parts["pixel_values"] = _noise(BATCH, getattr(vision, "num_channels", 3), height, width)
    vocabulary = getattr(getattr(config, "text_config", config), "vocab_size", None)
    if vocabulary:
        for name in ("input_ids", "decoder_input_ids"):
            if name in names and (name == "input_ids" or getattr(config, "is_encoder_decoder", False)):
                parts[name] = _whole_numbers(vocabulary, BATCH, WORDS)
    if "input_features" in names:
        frames = 2 * getattr(config, "max_source_positions", 1500)
        parts["input_features"] = _noise(BATCH, getattr(config, "num_mel_bins", 80), frames)
    if "input_values" in names:
        parts["input_values"] = _noise(BATCH, 16000)
    if parts:
        yield dict(parts)
    if len(parts) > 1:
        yield from ({name: value} for name, value in parts.items())


def diffusers_examples(model: nn.Module) -> Iterator[Example]:
    """Latents, a time, and the conditions that the forward has arguments for."""
    config, names = model.config, inspect.signature(model.forward).parameters
    stream = "hidden_states" if "hidden_states" in names else "sample"
    channels = getattr(config, "in_channels", None) or 4
    conditions = _conditions(config, names)
    fixed = stream == "hidden_states"  # transformers have positions for one size; convolutions take any
    height, width = _pair(getattr(config, "sample_size", None) or 32)
    size = (height, width) if fixed else (min(height, LARGEST_SIDE), min(width, LARGEST_SIDE))
    for shape in ((channels, *size), (channels, 4, *size), (4, channels, *size)):  # an image, or a short film
        yield {stream: _noise(BATCH, *shape), **conditions}
    if "img_ids" in names:  # latents packed into a sequence, with coordinates
        side = 4
        coordinates = torch.cartesian_prod(torch.zeros(1), *[torch.arange(side).float()] * 2)
        ids = {"img_ids": coordinates, "txt_ids": torch.zeros(WORDS, 3)}
        yield {stream: _noise(BATCH, side * side, channels), **conditions, **ids}


def _conditions(config: Any, names: Iterable[str]) -> dict[str, Any]:
    dims = ("caption_channels", "joint_attention_dim", "text_embed_dim", "encoder_hid_dim", "cross_attention_dim")
    words = next((dim for name in dims if (dim := _first(getattr(config, name, None)))), None)
    pooled = getattr(config, "pooled_projection_dim", None)
    classes = getattr(config, "num_embeds_ada_norm", None) or getattr(config, "num_class_embeds", None)
    made: dict[str, Any] = {"timestep": torch.full((BATCH,), 1)}
    if getattr(config, "guidance_embeds", False):
        made["guidance"] = torch.ones(BATCH)
    if words:
        made["encoder_hidden_states"] = _noise(BATCH, WORDS, words)
    if pooled:
        made["pooled_projections"] = _noise(BATCH, pooled)
    if classes:
        made["class_labels"] = torch.zeros(BATCH, dtype=torch.int64)
    made["added_cond_kwargs"] = _added_conditions(config)
    return {name: value for name, value in made.items() if name in names}


def _added_conditions(config: Any) -> dict[str, Any]:
    added: dict[str, Any] = {"resolution": None, "aspect_ratio": None}
    if getattr(config, "addition_embed_type", None) == "text_time":
        times = config.addition_time_embed_dim
        text = config.projection_class_embeddings_input_dim - 6 * times
        added |= {"text_embeds": _noise(BATCH, text), "time_ids": torch.ones(BATCH, 6)}
    if getattr(config, "use_additional_conditions", None):
        added |= {"resolution": torch.full((BATCH, 2), 512.0), "aspect_ratio": torch.ones(BATCH, 1)}
    return added


def _first(dim: Any) -> int | None:
    value = dim[0] if isinstance(dim, list | tuple) and dim else dim
    return value if isinstance(value, int) and value > 0 else None


def _pair(size: Any) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else (size[0], size[-1])
    return int(height), int(width)


def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=generator_for(0, "probe", 0))


def _whole_numbers(below: int, *shape: int) -> Tensor:
    # Neither the first few, which are often padding and marks, nor beyond the vocabulary.
    return torch.randint(min(5, below - 1), below, shape, generator=generator_for(0, "probe", 1))
