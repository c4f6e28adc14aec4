"""What may be asked of `sample`?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from echoless.config.checks import require_number, require_one_of, require_whole

Sampler = Literal["em", "ddim", "dpm++2m", "dpm++3", "euler", "heun", "sde", "dopri5"]


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Settings of sampling; image i depends on the seed and on i, not on batch size or number of processes."""

    n: int = 64
    """How many images."""
    sampler: Sampler | None = None
    """dpm++2m (default for noise prediction), heun (default for velocities), dpm++3, ddim, euler, em, sde, dopri5."""
    steps: int = 20
    """Steps of the sampler; dopri5 takes as many as it needs."""
    guidance: float = 1.0
    """1: as trained; larger: more like its class (needs a model with classes)."""
    guidance_channels: Literal["all", "first-three"] = "all"
    """first-three: as in the published SiT, whose guidance leaves the fourth channel of a latent alone."""
    clip: bool = True
    """Keep every guess of the clean image between black and white (uvit on pixels; never sit or latents)."""
    classes: tuple[int, ...] | None = None
    """The classes of image 0, 1, ..., in turn; -1 is none (default: all classes in turn)."""
    latent: str | None = None
    """Where the autoencoder of a run on latents is now (default: where it was); another one is refused."""
    batch_size: int = 64
    """Images that are computed, then saved; in pieces of 16, so that the pixels never depend on it."""
    seed: int = 0
    """Decides every draw."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    resume: bool = False
    """Continue in --out what was stopped."""
    overwrite: bool = False
    """Replace the samples in --out."""

    def __post_init__(self) -> None:
        require_whole("n", self.n, 1, 99_999_999)
        if self.sampler is not None:
            require_one_of("sampler", self.sampler, get_args(Sampler))
        require_whole("steps", self.steps, 1)
        require_number("guidance", self.guidance, 0, 1000)
        require_one_of("guidance_channels", self.guidance_channels, ("all", "first-three"))
        require_whole("batch_size", self.batch_size, 1)
        require_whole("seed", self.seed, 0)
        for label in self.classes or ():
            require_whole("classes", label, -1)
