"""What are the settings of diffusion models (U-ViT, SiT), their objectives, and their named sizes? No torch.

`uvit_preset("uvit-small")`, `sit_preset("sit-xl2", classes=1000, shortcuts=ShortcutConfig(alpha_min=0.8))`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, get_args

from echoless.config.body import TransformerBody
from echoless.config.checks import require, require_number, require_one_of, require_whole
from echoless.config.model import ShortcutConfig

NoiseSchedule = Literal["vp", "ddpm", "stable-diffusion"]
Interpolant = Literal["linear", "gvp", "vp"]
FlowPrediction = Literal["velocity", "noise", "score"]
Weighting = Literal["none", "velocity", "likelihood"]
TimeWaves = Literal["published", "diffusers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class UViTConfig(TransformerBody):
    """A U-ViT: depth / 2 input blocks, one middle block, depth / 2 output blocks, joined by long skips."""

    kind: ClassVar[str] = "uvit"
    denoises: ClassVar[bool] = True

    image_size: tuple[int, int] = (32, 32)  # height, width: of the image, or of its latent
    patch_size: int = 2
    channels: int = 3
    width: int = 512
    depth: int = 12  # as published: the block in the middle is not counted
    heads: int = 8
    mlp_ratio: float = 4.0
    norm_eps: float = 1e-5
    classes: int | None = None  # None: unconditional
    conv: bool = True  # a 3 x 3 convolution on the output
    zero_init: bool = False  # the last linear of every branch starts at zero
    shortcuts: ShortcutConfig = field(default_factory=ShortcutConfig)

    def __post_init__(self) -> None:
        _require_denoiser(self)
        require(self.depth % 2 == 0, "depth", self.depth, "an even number: every output block has its input block")

    @property
    def blocks(self) -> int:
        """All that shortcuts fade over: in, middle and out."""
        return self.depth + 1

    @property
    def extra_tokens(self) -> int:
        """The label, where there are classes, and the time; before the patches."""
        return 1 if self.classes is None else 2

    @property
    def body(self) -> UViTConfig:
        return self

    @property
    def title(self) -> str:
        return f"U-ViT {self.sizes}, {_classes_title(self)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SiTConfig(TransformerBody):
    """A SiT (the network of DiT): blocks modulated by time and class, with or without long skips between its halves."""

    kind: ClassVar[str] = "sit"
    denoises: ClassVar[bool] = True

    image_size: tuple[int, int] = (32, 32)  # height, width: of the image, or of its latent
    patch_size: int = 2
    channels: int = 4
    width: int = 1152
    depth: int = 28
    heads: int = 16
    mlp_ratio: float = 4.0
    norm_eps: float = 1e-6
    classes: int | None = None  # None: unconditional
    learn_sigma: bool = True  # twice the channels are predicted and the second half is dropped, as published
    long_skips: bool = True  # between the halves, as in arXiv:2404.10947; False is the published SiT
    time_waves: TimeWaves = "published"  # frequencies down to almost 1 / 10000, or, in diffusers' DiT, exactly to it
    shortcuts: ShortcutConfig = field(default_factory=ShortcutConfig)

    def __post_init__(self) -> None:
        _require_denoiser(self)
        require_one_of("time_waves", self.time_waves, get_args(TimeWaves))
        if self.long_skips:
            require(
                self.depth % 2 == 0, "depth", self.depth, "an even number with long_skips, which join the two halves"
            )

    @property
    def extra_tokens(self) -> int:
        return 0

    @property
    def body(self) -> SiTConfig:
        return self

    @property
    def title(self) -> str:
        return f"SiT {self.sizes}, {_classes_title(self)}"


def _classes_title(config: UViTConfig | SiTConfig) -> str:
    return "unconditional" if config.classes is None else f"{config.classes} classes"


def _require_denoiser(config: UViTConfig | SiTConfig) -> None:
    config.require_sizes()
    if config.classes is not None:
        require_whole("classes", config.classes, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffusionConfig:
    """Squared error of the predicted noise: continuous ("vp": beta 0.1 to 20) or over a thousand discrete steps."""

    kind: ClassVar[str] = "diffusion"

    schedule: NoiseSchedule = "vp"
    first_step: int = 1  # the time that the network is given for the first discrete step: 1 in U-ViT, 0 in DiT
    label_dropout: float = 0.1  # probability of dropping the label (classifier-free guidance)

    def __post_init__(self) -> None:
        require_one_of("schedule", self.schedule, get_args(NoiseSchedule))
        require_whole("first_step", self.first_step, 0, 1)
        require_number("label_dropout", self.label_dropout, 0, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowConfig:
    """A stochastic interpolant from noise (time 0) to data (time 1), and the predicted quantity."""

    kind: ClassVar[str] = "flow"

    interpolant: Interpolant = "linear"
    prediction: FlowPrediction = "velocity"
    weighting: Weighting = "none"  # of the noise and score losses; the velocity loss has none
    label_dropout: float = 0.1

    def __post_init__(self) -> None:
        require_one_of("interpolant", self.interpolant, get_args(Interpolant))
        require_one_of("prediction", self.prediction, get_args(FlowPrediction))
        require_one_of("weighting", self.weighting, get_args(Weighting))
        if self.prediction == "velocity":
            require(self.weighting == "none", "weighting", self.weighting, "none, with prediction velocity")
        require_number("label_dropout", self.label_dropout, 0, 1)


class DenoiserSize(NamedTuple):
    width: int
    depth: int
    heads: int
    patch_size: int = 2
    channels: int = 4  # of a latent


UVIT_SIZES = {
    "uvit-tiny": DenoiserSize(128, 8, 2, patch_size=4, channels=3),
    "uvit-small": DenoiserSize(512, 12, 8, channels=3),
    "uvit-mid": DenoiserSize(768, 16, 12),
    "uvit-large": DenoiserSize(1024, 20, 16),
    "uvit-huge": DenoiserSize(1152, 28, 16),
}

_SIT_WIDTHS = {
    "s": DenoiserSize(384, 12, 6),
    "b": DenoiserSize(768, 12, 12),
    "l": DenoiserSize(1024, 24, 16),
    "xl": DenoiserSize(1152, 28, 16),
}
SIT_SIZES = {
    "sit-tiny": DenoiserSize(128, 8, 2, patch_size=4, channels=3),
    **{
        f"sit-{name}{patch}": size._replace(patch_size=patch)
        for name, size in _SIT_WIDTHS.items()
        for patch in (2, 4, 8)
    },
}


def uvit_preset(
    name: str,
    *,
    image_size: tuple[int, int] = (32, 32),
    patch_size: int | None = None,
    channels: int | None = None,
    classes: int | None = None,
    zero_init: bool | None = None,
    shortcuts: ShortcutConfig | None = None,
) -> UViTConfig:
    """A named size on 32 x 32: pixels for tiny and small, latents of four channels for the others, unless said.

    zero_init defaults to on if the shortcuts fade; a comparison sets it for both sides.
    """
    require_one_of("preset", name, tuple(UVIT_SIZES))
    size, shortcuts = UVIT_SIZES[name], shortcuts or ShortcutConfig()
    faded = shortcuts.variant == "faded" and shortcuts.alpha_min != 1.0
    return UViTConfig(
        image_size=image_size,
        patch_size=patch_size or size.patch_size,
        channels=channels or size.channels,
        width=size.width,
        depth=size.depth,
        heads=size.heads,
        classes=classes,
        conv=name != "uvit-huge",
        zero_init=faded if zero_init is None else zero_init,
        shortcuts=shortcuts,
    )


def sit_preset(
    name: str,
    *,
    image_size: tuple[int, int] = (32, 32),
    patch_size: int | None = None,
    channels: int | None = None,
    classes: int | None = None,
    long_skips: bool = True,
    shortcuts: ShortcutConfig | None = None,
) -> SiTConfig:
    """A named size on 32 x 32: pixels for tiny, latents of four channels for the others, unless said.

    The published SiT is `long_skips=False` with alpha_min 1; a comparison uses the same skips for both sides.
    """
    require_one_of("preset", name, tuple(SIT_SIZES))
    size = SIT_SIZES[name]
    return SiTConfig(
        image_size=image_size,
        patch_size=patch_size or size.patch_size,
        channels=channels or size.channels,
        width=size.width,
        depth=size.depth,
        heads=size.heads,
        classes=classes,
        long_skips=long_skips,
        shortcuts=shortcuts or ShortcutConfig(),
    )
