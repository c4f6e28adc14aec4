"""Which arguments does `sample` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from typing import Literal, get_args

from echoless.config.checks import require_number, require_one_of, require_whole
from echoless.config.options.fields import AnyPath, given, group

Sampler = Literal["em", "ddim", "dpm++2m", "dpm++3", "dpm3", "euler", "heun", "sde", "dopri5"]
GuidanceChannels = Literal["all", "first-three"]


@dataclass(frozen=True)
class SampleOptions:
    """Draw images from a diffusion run: PNGs, a grid, and samples.npz for evaluation suites.

    The noise and the class of image i depend only on the seed and on i. Its pixels do not depend on the batch size or
    on the number of processes. Stop it with Ctrl-C at any time and continue with --resume.
    """

    EXAMPLES = (
        "echoless sample RUN --out SAMPLES --n 64",
        "echoless sample RUN --out SAMPLES --n 1000 --sampler heun --steps 50 --guidance 1.5",
    )

    run: AnyPath
    """A diffusion run (EMA weights if it has any; newest checkpoint if it has not ended), or a model folder."""
    _: KW_ONLY
    out: AnyPath
    """Output folder to create."""
    n: int | None = None
    """Number of images (default: 64)."""
    sampler: Sampler | None = None
    """dpm++2m (default for noise prediction), heun (default for velocities), dpm++3, dpm3 (U-ViT-M and -L), ddim,
    euler, em, sde or dopri5."""
    steps: int | None = None
    """Number of sampler steps; dopri5 chooses its own (default: 20)."""
    guidance: float | None = None
    """Classifier-free guidance scale (default: 1, none); larger than 1 needs a model with classes."""
    guidance_channels: GuidanceChannels | None = None
    """Channels to guide: all (default), or first-three, as in the published SiT on 4-channel latents."""
    clip: bool | None = None
    """Clip the predicted clean image to the pixel range at every step (default: yes; U-ViT on pixels only)."""
    classes: tuple[int, ...] | None = None
    """Class labels of image 0, 1, ..., repeated cyclically; -1 is no class (default: all classes)."""
    seed: int | None = None
    """Random seed (default: 0)."""
    resume: bool = False
    """Continue the samples in --out. Settings that are not given keep their recorded values."""
    overwrite: bool = False
    """Replace the samples in --out."""

    group("diffusion models")
    latent: AnyPath | None = None
    """Folder of the autoencoder used in training, for a latent-space run (default: the recorded path)."""

    group("machine")
    batch_size: int | None = None
    """Images that are saved together (default: 64, or --at-once if that is more). Does not change the images."""
    at_once: int | None = None
    """Images given to the network at a time (default: 16 on a CPU, 256 on a GPU). Noise and class of an image do not
    depend on it; its pixels do by rounding only."""
    precision: Literal["auto", "fp32", "bf16"] | None = None
    """Precision of the network: fp32 (default), bf16, or auto: bf16 on GPUs that have it, else fp32."""
    device: str | None = None
    """auto (default), cpu, cuda, cuda:N, xpu or mps."""

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            require_whole("batch_size", self.batch_size, 1)
        SampleSettings(**given(self, *(field.name for field in fields(SampleSettings))))


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """Everything besides the model that determines the samples; DIR/samples.json records it."""

    n: int = 64
    sampler: Sampler | None = None  # None: the one that suits the objective
    steps: int = 20
    guidance: float = 1.0
    guidance_channels: GuidanceChannels = "all"
    clip: bool = True
    classes: tuple[int, ...] | None = None
    at_once: int | None = None  # None: what suits the device
    precision: Literal["auto", "fp32", "bf16"] = "fp32"
    seed: int = 0

    def __post_init__(self) -> None:
        require_whole("n", self.n, 1, 99_999_999)
        if self.sampler is not None:
            require_one_of("sampler", self.sampler, get_args(Sampler))
        require_whole("steps", self.steps, 1)
        require_number("guidance", self.guidance, 0, 1000)
        require_one_of("guidance_channels", self.guidance_channels, get_args(GuidanceChannels))
        if self.at_once is not None:
            require_whole("at_once", self.at_once, 1, 65536)
        require_one_of("precision", self.precision, ("auto", "fp32", "bf16"))
        require_whole("seed", self.seed, 0)
        for label in self.classes or ():
            require_whole("classes", label, -1)
