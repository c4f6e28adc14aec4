"""How does an encoder become a folder that transformers loads without our code? hf_models.py says as which class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from echoless.config import ViTConfig
from echoless.data.resizing import BY_SIZE
from echoless.exchange.exported import ExportedEncoder
from echoless.exchange.hf_models import HFModel, hf_config, hf_model
from echoless.exchange.plain import ReferenceTokens, with_one_eps
from echoless.exchange.snippet import has_pictures
from echoless.exchange.target import Target, Unusable, Written, write_config, write_json_file
from echoless.storage.tensorfile import write_tensors

USAGE = """\
from transformers import AutoImageProcessor, CLASS

model = CLASS.from_pretrained("DIR").eval()
processor = AutoImageProcessor.from_pretrained("DIR")
inputs = processor(image, return_tensors="pt")
tokens = model(**inputs, output_hidden_states=True).hidden_states[-1]   # (batch, TOKENS + patches, width)
feature = tokens.mean(dim=1)                                            # (batch, width)"""

USAGE_WITHOUT_PROCESSOR = """\
import torch
from transformers import CLASS

model = CLASS.from_pretrained("DIR").eval()
images = torch.from_numpy(images)
tokens = model(images, output_hidden_states=True).hidden_states[-1]   # (batch, TOKENS + patches, width)
feature = tokens.mean(dim=1)                                          # (batch, width)"""


def write(folder: Path, source: ExportedEncoder, reference: ReferenceTokens) -> Written:
    plain = with_one_eps(source.encoder, reference)
    model = hf_model(plain.encoder.config)
    write_tensors(folder / "model.safetensors", model.tensors(plain.encoder))
    write_config(folder, hf_config(plain), source)
    processor = processor_config(source)
    if processor is not None:
        write_json_file(folder / "preprocessor_config.json", processor)
    usage = USAGE_WITHOUT_PROCESSOR if processor is None else USAGE
    return Written(
        error=plain.error,
        settings={"class": model.name, "layer_norm_eps": f"{plain.eps:.6g}"},
        feature=_feature(source.encoder.config, model),
        usage=usage.replace("CLASS", model.name).replace("TOKENS", str(source.encoder.config.extra_tokens)),
        prepares=processor is not None,
        difference=_difference(source),
    )


def _feature(config: ViTConfig, model: HFModel) -> str:
    included = ["the class token"] if config.class_token else []
    included += ["the registers"] if config.registers else []
    what = f", {' and '.join(included)} included," if included else ""
    norm = (
        "the encoder's own final LayerNorm"
        if config.final_norm
        else "a LayerNorm with unit weights (the encoder has none)"
    )
    said = (
        f"The feature is the mean over all tokens{what} of `hidden_states[-1]`: the last block's output, before the "
        f"final norm. `last_hidden_state` is that tensor after {norm}"
    )
    if model.model_type == "beit" and not config.final_norm:
        return f"{said.partition('. ')[0]}. `last_hidden_state` is the same tensor."
    return f"{said}; `pooler_output` is its class token." if config.class_token else f"{said}."


def processor_config(source: ExportedEncoder) -> dict[str, Any] | None:
    """Our transform of evaluation, where an image processor can express it: one or three channels of 8 bit."""
    if not has_pictures(source):
        return None
    config = source.encoder.config
    height, width = config.image_size
    settings: dict[str, Any] = {
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(source.mean),
        "image_std": list(source.std),
        "do_convert_rgb": config.channels == 3,
        "do_resize": True,
        "resample": 3 if source.large else 2,  # Pillow's numbers: bicubic, bilinear
    }
    if height != width:  # no processor covers and crops to another shape: the image is stretched instead
        return settings | {"image_processor_type": "ViTImageProcessor", "size": {"height": height, "width": width}}
    return settings | {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": BY_SIZE.fit((height, width)).size[0] if source.large else height},
        "do_center_crop": True,
        "crop_size": {"height": height, "width": width},
    }


def _difference(source: ExportedEncoder) -> str:
    """What no image processor can be told."""
    config = source.encoder.config
    height, width = config.image_size
    if not has_pictures(source):
        what = f"{config.channels} channels" if source.bits != 16 else "16-bit images"
        return (
            f"transformers has no image processor for {what}, so none is written: the card has the mean and the "
            "standard deviation by which images are normalised."
        )
    if height != width:
        return (
            f"The image processor stretches images to {height} x {width}, because none covers another shape than a "
            "square: features of images of other proportions differ."
        )
    if source.large:
        return (
            "The image processor rounds half a pixel at the border of a crop down, echoless to the even number: the "
            "crop of some images is shifted by one pixel."
        )
    return ""


@contextmanager
def _no_progress_bar(switch: Any) -> Iterator[None]:
    shown = switch.is_progress_bar_enabled()
    switch.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            switch.enable_progress_bar()


@torch.no_grad()
def read_back(folder: Path, source: ExportedEncoder, images: Tensor) -> tuple[Tensor, str]:
    try:
        import transformers

        library = getattr(transformers, hf_model(source.encoder.config).name)
    except Exception as error:
        raise Unusable("transformers", TARGET.extra, error) from None
    with _no_progress_bar(transformers.utils.logging):
        model = library.from_pretrained(folder, local_files_only=True).eval()
    tokens = model(images, output_hidden_states=True).hidden_states[-1]
    return tokens, transformers.__version__


TARGET = Target("transformers", "hf", write, read_back)
