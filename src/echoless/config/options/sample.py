"""Which arguments does `sample` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from typing import Literal, get_args

from echoless.config.checks import require_number, require_one_of, require_whole
from echoless.config.options.fields import AnyPath, given

Sampler = Literal["em", "ddim", "dpm++2m", "dpm++3", "euler", "heun", "sde", "dopri5"]
GuidanceChannels = Literal["all", "first-three"]


@dataclass(frozen=True)
class SampleOptions:
    """Draw images from a diffusion run: PNGs, a grid, and samples.npz for evaluation suites.

    Image i depends on the seed and on i alone: batch size and number of processes change nothing. Stop it with Ctrl-C
    at any time, continue with --resume.
    """

    run: AnyPath
    """A diffusion run (its averaged weights; the newest checkpoint while it goes on), or a model folder."""
    _: KW_ONLY
    out: AnyPath
    """The folder to create."""

    n: int | None = None
    """Number of images (default: 64)."""
    sampler: Sampler | None = None
    """dpm++2m (default for noise prediction), heun (default for velocities), dpm++3, ddim, euler, em, sde, dopri5."""
    steps: int | None = None
    """Steps of the sampler; dopri5 takes as many as it needs (default: 20)."""
    guidance: float | None = None
    """Classifier-free guidance scale (default: 1, none); larger than 1 needs a model with classes."""
    guidance_channels: GuidanceChannels | None = None
    """Channels that are guided: all (default), or first-three, as in the published SiT on latents of four."""
    clip: bool | None = None
    """Clip every estimate of the clean image to the range of pixels (default: yes; uvit on pixels only)."""
    classes: tuple[int, ...] | None = None
    """The classes of image 0, 1, ..., in turn; -1 is none (default: all classes in turn)."""
    latent: AnyPath | None = None
    """Where the autoencoder of a run on latents is now (default: its recorded path); another one is refused."""
    batch_size: int | None = None
    """Images that are computed, then saved, together (default: 64). The pixels do not depend on it."""
    seed: int | None = None
    """Decides every draw (default: 0)."""
    device: str | None = None
    """auto (default), cpu, cuda or cuda:N."""
    resume: bool = False
    """Continue the samples in --out. Settings that are not given keep their recorded values."""
    overwrite: bool = False
    """Replace the samples in --out."""

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            require_whole("batch_size", self.batch_size, 1)
        SampleSettings(**given(self, *(field.name for field in fields(SampleSettings))))


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """All that decides the pixels besides the model, with its defaults: what DIR/samples.json records."""

    n: int = 64
    sampler: Sampler | None = None  # None: the one that suits the objective
    steps: int = 20
    guidance: float = 1.0
    guidance_channels: GuidanceChannels = "all"
    clip: bool = True
    classes: tuple[int, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_whole("n", self.n, 1, 99_999_999)
        if self.sampler is not None:
            require_one_of("sampler", self.sampler, get_args(Sampler))
        require_whole("steps", self.steps, 1)
        require_number("guidance", self.guidance, 0, 1000)
        require_one_of("guidance_channels", self.guidance_channels, get_args(GuidanceChannels))
        require_whole("seed", self.seed, 0)
        for label in self.classes or ():
            require_whole("classes", label, -1)
