"""What is evaluated? A frozen encoder: images in, tokens or one vector per image out, whichever library it is from."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from echoless.config.checks import nearest
from echoless.config.normalisation import Assumption
from echoless.config.options.fields import at_home
from echoless.config.selfsupervised import DistillationConfig, InfoNCEConfig
from echoless.data import open_images, resize_and_crop
from echoless.data.decode import DecodeSettings
from echoless.data.given import Given, pixels_of_given
from echoless.data.reading import describe_bad, settled_tiles, stand_for_tiles
from echoless.data.resizing import BY_SIZE, Fit, Framing
from echoless.errors import ConfigError
from echoless.measures.threads import one_thread_each
from echoless.models import ViT, fresh, pool, without_silent_branches
from echoless.models.features import NamedTokens
from echoless.randomness import generator_for
from echoless.runs.open import TrainedBody, fingerprint_of

if TYPE_CHECKING:
    import pyarrow as pa

# Numbers in the tokens of one layer. On a CPU more of them leave its cache, and their memory goes back to the system
# and is asked for again at every layer: a quarter slower at 32 x 32, a sixth at 224 x 224.
MOST_AT_ONCE = 2**19
NORM = "norm"  # the name of the final norm among the layers
RAW_SIDE = 16  # a probe on more pixels costs the cube of their number, and tells no more

Tokens = dict[str, Tensor]  # layer -> (B, T, D); token 0 is the class token where there is one
Layers = Sequence[str] | None  # None: every named intermediate


@dataclass(frozen=True, kw_only=True, repr=False)
class Encoder:
    """A frozen feature extractor; `echoless.load` opens one.

    It never masks, and the same images give the same features. Images (B, C, H, W) are normalised, as `preprocess`
    makes them.
    """

    name: str
    fingerprint: str  # of the weights and everything else that decides the features
    image_size: tuple[int, int]
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    layers: tuple[str, ...]  # block outputs in the order of the network, then the final norm; the default is the last
    tokens: Callable[[Tensor, Layers], Tokens]
    framing: Framing = BY_SIZE  # which part of an image it is given
    default_pooling: str = "mean"
    has_class_token: bool = True
    extra_tokens: int | None = None  # tokens before those of the patches; None: the class token, where there is one
    grid: tuple[int, int] | None = None  # rows and columns of patch tokens
    has_keys: bool = False  # whether `tokens` also gives the keys of a block's attention, as `block03/key`
    untrained: Callable[[], Encoder] | None = None
    checkpoint: int | None = None  # the step it was taken at, where the run has not ended
    assumed: Assumption | None = None  # where the model does not say how its images are normalised
    tiles: int | None = None  # the side of the tiles that it was trained on; None: whole images
    # Of diffusion models alone (evaluation/noisy.py):
    noise: float | None = None  # the noise level of the images it is given, 0 to 1
    noisy_tokens: Callable[[Tensor, Layers, Tensor], Tokens] | None = None  # with the indices of the images
    at_noise: Callable[[float], Encoder] | None = None  # the same network at another level
    middle: str | None = None  # the layer where its halves meet: the default, as the last one is close to pixels

    @property
    def default_layer(self) -> str:
        return self.middle or self.layers[-1]

    @property
    def normalised_layer(self) -> str:
        """The final norm; where there is none, the default layer."""
        return NORM if NORM in self.layers else self.default_layer

    @property
    def depth(self) -> int:
        """How many blocks it has."""
        return len({name.split("/")[0] for name in self.layers if name.startswith("block")})

    @property
    def prefix_tokens(self) -> int:
        """How many tokens come before those of the patches: a class token, registers."""
        return int(self.has_class_token) if self.extra_tokens is None else self.extra_tokens

    @property
    def reduction(self) -> Fit:
        """How larger images may be made smaller when they are decoded for it."""
        return self.framing.reduction(self.image_size)

    @property
    def dense_framing(self) -> Framing:
        """The part of an image that is given to it where patches matter: no border is cut off."""
        return replace(self.framing, share=1.0)

    def __call__(self, images_BCHW: Tensor, *, layer: str | None = None, pooling: str | None = None) -> Tensor:
        """One vector per image (B, D): by default the mean over all tokens of the last layer, as in the paper."""
        layer = layer or self.default_layer
        self.require_layer(layer)
        self._check_images(images_BCHW)
        return self.pool(self.tokens(images_BCHW, [layer])[layer], pooling or self.default_pooling)

    def features(self, images_BCHW: Tensor, layers: Layers = None) -> Tokens:
        """Every named intermediate (B, T, D), in the order of the network: `block03/attn`, `block03/+attn`, ...

        layers: only these.
        """
        self._check_images(images_BCHW)
        asked = [layers] if isinstance(layers, str) else layers
        tokens = self.tokens(images_BCHW, asked)
        for name in asked or ():
            if name not in tokens:
                self._refuse_layer(name, ", and every other name that features(images) gives")
        return NamedTokens(tokens)

    def patches(self, images_BCHW: Tensor, layer: str | None = None) -> Tensor:
        """The patch features of one layer on their grid (B, rows, columns, D), without class token and registers."""
        if self.grid is None:
            raise ConfigError(f"{self.name} has no grid of patch tokens")
        layer = layer or self.default_layer
        self.require_layer(layer)
        self._check_images(images_BCHW)
        return self.patches_of(self.tokens(images_BCHW, [layer])[layer]).unflatten(1, self.grid)

    def require_layer(self, name: str) -> None:
        """Refuse a layer that it does not have; keys of its attention are layers of patches, too."""
        keys = self.has_keys and name.endswith("/key") and any(each.startswith(name[:-3]) for each in self.layers)
        if name not in self.layers and not keys:
            self._refuse_layer(name)

    def preprocess(self, image: Given) -> Tensor:
        """An image as the network takes it (C, H, W): resized and cropped to `image_size`, normalised.

        A picture of Pillow, the path of an image file, or an array or tensor (H, W) or (H, W, C) with any number of
        channels: uint8, uint16, or floats from 0 to 1, as in an .npz file. For an encoder that was trained on tiles it
        is one tile, and used whole.
        """
        pixels_CHW = pixels_of_given(image, DecodeSettings(channels=self.channels, reduction=self.reduction))
        framing = self.framing if self.tiles is None else self.dense_framing
        scaling = {"mean": self.mean, "std": self.std}
        return resize_and_crop([pixels_CHW], size=self.image_size, framing=framing, **scaling)[0]

    def embed(
        self,
        data: str | Path,
        *,
        labels: str | Path | None = None,
        layer: str | None = None,
        tiles: int | None = None,
    ) -> pa.Table:
        """A table of the images in a folder, or in any other DATA: path, feature and, where it is known, label.

        Unreadable images are left out with a warning, as `echoless embed` leaves them out. Grey, RGB and RGBA images
        are converted to the channels of the encoder.
        tiles: cut the files into squares of this side, one row for each, with its corner in the columns x and y
        (default: as it was trained; 0: whole images).
        """
        from echoless.evaluation.embed import embedded
        from echoless.evaluation.extract import View
        from echoless.evaluation.table_columns import Columns

        data, given = at_home(data), None if labels is None else Path(at_home(labels))
        images = open_images(
            data,
            labels=given,
            channels=self.channels,
            reduction=self.reduction,
            tiles=settled_tiles(data, tiles, self.tiles),
            max_bad_fraction=1.0,
            say=lambda text: print(text, file=sys.stderr),
        )
        images.stand_for_tiles = stand_for_tiles(data, tiles, self.tiles)
        table = embedded(self, images, Columns((View(layer or self.default_layer, self.default_pooling),)))
        if images.bad:
            warnings.warn("; ".join(describe_bad(images)), stacklevel=2)
        return table

    def patches_of(self, tokens_BTD: Tensor) -> Tensor:
        """(B, P, D): the patch tokens among the tokens of one of its layers."""
        return tokens_BTD[:, self.prefix_tokens :]

    def pool(self, tokens_BTD: Tensor, pooling: str) -> Tensor:
        """(B, D) of the tokens of one of its layers."""
        return pool(tokens_BTD, pooling, extra_tokens=self.prefix_tokens, class_token=self.has_class_token)

    def tokens_of(self, images_BCHW: Tensor, layers: Layers, ids_B: Tensor) -> Tokens:
        """The tokens of images whose indices are known; they decide the noise, where there is any."""
        if self.noisy_tokens is None:
            return self.tokens(images_BCHW, layers)
        return self.noisy_tokens(images_BCHW, layers, ids_B)

    def _refuse_layer(self, name: str, more: str = "") -> NoReturn:
        raise ConfigError(f"layer is {name!r}; allowed: {', '.join(self.layers)}{more}{nearest(name, self.layers)}")

    def _check_images(self, images_BCHW: Tensor) -> None:
        if not isinstance(images_BCHW, Tensor) or not images_BCHW.is_floating_point():
            given = images_BCHW.dtype if isinstance(images_BCHW, Tensor) else type(images_BCHW).__name__
            raise ConfigError(
                f"images are of the type {given}; they must be a tensor of floats (batch, {self.channels}, height, "
                "width): torch.stack of what preprocess gives for each image"
            )
        shape = tuple(images_BCHW.shape)
        if len(shape) != 4 or shape[1] != self.channels:
            raise ConfigError(f"images have the shape {shape}; allowed: (batch, {self.channels}, height, width)")
        if shape[0] == 0:
            raise ConfigError(f"images have the shape {shape}, an empty batch; give one image or more")

    def __repr__(self) -> str:
        height, width = self.image_size
        shown = f", noise {self.noise:g}" if self.noise is not None else ""
        return (
            f"Encoder({self.name}: {self.channels} x {height} x {width}, {len(self.layers)} layers, "
            f"default {self.default_layer}{shown})"
        )


def from_body(body: TrainedBody, device: str = "cpu") -> Encoder:
    """One of our own encoders of images; the tokens of a ResNet are the places of its map."""
    config, model = body.config, body.model.to(device).eval()
    together = _together(config) if config.grid is not None and device == "cpu" else None
    lighter = without_silent_branches(model) if isinstance(model, ViT) else model

    def tokens(images_BCHW: Tensor, layers: Layers) -> Tokens:
        network = model if any(name.endswith("/key") for name in layers or ()) else lighter
        if together is None:
            return dict(network.features(images_BCHW.to(device), only=layers))
        with one_thread_each() as threads:
            parts = list(threads.map(lambda images: network.features(images, only=layers), images_BCHW.split(together)))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def untrained() -> Encoder:
        start = fresh(config, generator_for(0, "init", 0))
        return from_body(replace(body, name="untrained encoder", origin="", step=None, model=start), device)

    return Encoder(
        name=body.title,
        fingerprint=body.fingerprint,
        image_size=config.image_size,
        channels=config.channels,
        mean=body.mean,
        std=body.std,
        layers=config.feature_layers,
        tokens=tokens,
        # MoCo v3 and DINO compare class tokens, and their authors measure those.
        default_pooling="cls" if isinstance(body.objective, InfoNCEConfig | DistillationConfig) else "mean",
        has_class_token=config.has_class_token,
        extra_tokens=config.extra_tokens,
        grid=config.grid,
        has_keys=config.kind == "vit",
        untrained=untrained,
        checkpoint=body.step if body.is_checkpoint else None,
    )


def _together(config: Any) -> int:
    """How many images suit the cache of a core: a power of two."""
    one = (config.extra_tokens + math.prod(config.grid)) * config.width
    return 2 ** max(0, int(math.log2(MOST_AT_ONCE / one)))


def from_function(
    function: Callable[[Tensor], Tensor],
    *,
    image_size: tuple[int, int],
    channels: int,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    name: str = "function",
    fingerprint: str | None = None,
    framing: Framing = BY_SIZE,
) -> Encoder:
    """Any callable: images (B, C, H, W) to vectors (B, D) or tokens (B, T, D). Never cached unless fingerprinted."""

    @torch.no_grad()
    def tokens(images_BCHW: Tensor, layers: Layers) -> Tokens:
        output = function(images_BCHW)
        if output.ndim not in (2, 3):
            raise ConfigError(f"the encoder returns shape {tuple(output.shape)}; allowed: (B, D) or (B, T, D)")
        return {"output": output[:, None] if output.ndim == 2 else output}

    return Encoder(
        name=name,
        fingerprint=fingerprint or "",
        image_size=image_size,
        channels=channels,
        mean=mean or (0.0,) * channels,
        std=std or (1.0,) * channels,
        layers=("output",),
        tokens=tokens,
        framing=framing,
        has_class_token=False,
    )


def raw_pixels(encoder: Encoder) -> Encoder:
    """The first row of every table: the image itself as the feature, averaged down to at most 16 x 16."""
    size = encoder.image_size

    def flatten(images_BCHW: Tensor) -> Tensor:
        shown = (min(RAW_SIDE, size[0]), min(RAW_SIDE, size[1]))
        return torch.nn.functional.adaptive_avg_pool2d(images_BCHW, shown).flatten(1)

    about = repr((size, encoder.channels, encoder.mean, encoder.std))
    return of_pixels(encoder, flatten, ["raw pixels", str(RAW_SIDE), about])


def of_pixels(encoder: Encoder, function: Callable[[Tensor], Tensor], words: Sequence[str]) -> Encoder:
    """A function of the pixels that this encoder is given; `words` say which, for its fingerprint."""
    return from_function(
        function,
        image_size=encoder.image_size,
        channels=encoder.channels,
        mean=encoder.mean,
        std=encoder.std,
        name="raw pixels",
        framing=encoder.framing,
        fingerprint=fingerprint_of({}, words),
    )
