"""Which features is a Frechet distance computed on? Those of a named frozen network, part of every protocol.

inception:FILE   Inception-v3 of 2015 from a local file, as FID tools have it: its weights (.pth, .safetensors), or
                 the TorchScript archive that takes bytes 0..255. TorchScript is a program: torch runs it without
                 Python's pickle, but it may do whatever torch can. It is run only under this prefix.
anything else    a frozen encoder: an echoless run, a folder of transformers, timm:NAME
"""

from __future__ import annotations

import hashlib
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from echoless.config.options.evaluate import INCEPTION
from echoless.errors import ConfigError, DataError, UntrustedFile
from echoless.evaluation.encoder import Encoder, Layers, Tokens
from echoless.evaluation.frozen import load
from echoless.exchange.foreign import read_foreign
from echoless.models.inception import Inception
from echoless.runs.open import fingerprint_of

FEATURES, PROBABILITIES = "features", "probabilities"

Network = Callable[[Tensor], tuple[Tensor, Tensor]]  # images in 0..1 -> features, class probabilities


def open_extractor(name: str, image_size: tuple[int, int], device: str = "cpu") -> Encoder:
    """`image_size` is that of the images that are compared: Inception resizes them itself, as FID tools do."""
    if not name.startswith(INCEPTION):
        return load(name, device=device)
    file = Path(name.removeprefix(INCEPTION))
    if not file.exists():
        raise ConfigError(f"extractor is {name!r}, but the file {file} does not exist")
    if not file.is_file():
        raise UntrustedFile(f"{file} is not a regular file; give a file of weights or a TorchScript archive")
    network = _scripted(file, device) if _is_torchscript(file) else _weights(file, device)
    fingerprint = _fingerprint(file, image_size)
    return from_inception(network, name=name, fingerprint=fingerprint, image_size=image_size, device=device)


def from_inception(
    network: Network, *, name: str, fingerprint: str, image_size: tuple[int, int], device: str = "cpu"
) -> Encoder:
    """Layers: the class probabilities, and the features, which are the default."""

    @torch.no_grad()
    def tokens(images_BCHW: Tensor, layers: Layers) -> Tokens:
        features, probabilities = network(images_BCHW.to(device))
        both = {FEATURES: features[:, None], PROBABILITIES: probabilities[:, None]}
        return {layer: both[layer] for layer in (both if layers is None else layers)}

    return Encoder(
        name=name,
        fingerprint=fingerprint,
        image_size=image_size,
        channels=3,
        mean=(0.0,) * 3,
        std=(1.0,) * 3,
        layers=(PROBABILITIES, FEATURES),
        tokens=tokens,
        has_class_token=False,
    )


def _weights(file: Path, device: str) -> Network:
    """Built without memory, so that nothing is allocated before every shape is known to fit."""
    with torch.device("meta"):
        model = Inception().eval()
    state = {name: tensor for name, tensor in read_foreign(file).tensors.items() if not name.startswith("AuxLogits.")}
    counters = [name for name in model.state_dict() if name.endswith("num_batches_tracked")]
    floats = {name: tensor.float() for name, tensor in state.items() if name not in counters}
    try:
        model.load_state_dict({**dict.fromkeys(counters, torch.tensor(0)), **floats}, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise UntrustedFile(f"{file} does not hold the Inception-v3 that FID tools share: {reason}") from None
    model = model.to(device)

    def network(images_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        features = model(images_BCHW)
        return features, model.probabilities(features)

    return network


def _is_torchscript(file: Path) -> bool:
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _scripted(file: Path, device: str) -> Network:
    """The interface of the archive that StyleGAN's authors share: bytes in; features, or class probabilities."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather be given an exported program; this file is what exists
        try:
            model = torch.jit.load(str(file), map_location=device).eval()
        except RuntimeError as error:
            raise UntrustedFile(f"{file} is not a TorchScript archive: {' '.join(str(error).split())[:200]}") from None

    def network(images_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        levels = (images_BCHW * 255).round().clamp(0, 255).to(torch.uint8)
        try:
            return model(levels, return_features=True).float(), model(levels, no_output_bias=True).float()
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"{file} is not the Inception that FID tools share: {reason}") from None

    return network


def _fingerprint(file: Path, image_size: tuple[int, int]) -> str:
    """Of the file and of the size that images have before the network resizes them."""
    with file.open("rb") as opened:
        content = hashlib.file_digest(opened, "sha256").hexdigest()
    return fingerprint_of({}, ["inception", content, repr(image_size)])
