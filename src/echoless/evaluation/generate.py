"""How does a diffusion model generate images? Image i depends on (seed, i) alone, not on its batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from echoless.errors import ConfigError
from echoless.evaluation.trained_denoiser import open_denoiser
from echoless.models import DENOISERS, SiT, UViT
from echoless.objectives import DiffusionObjective, FlowObjective, Sampling, draw_samples
from echoless.objectives.samplers import SampleNoise
from echoless.runs.autoencoder import VAE
from echoless.runs.open import fingerprint_of, load_body

# Images at a time, where it is not given: what fills a device. The last ones are padded to the same number, because a
# processor rounds differently in another batch.
ON_CPU, ON_GPU = 16, 256
DECODED = 16  # latents at a time: the images of an autoencoder take far more memory than the tokens of a denoiser

Predict = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # (x, time_B, labels_B) -> what the network predicts


@dataclass(frozen=True, kw_only=True)
class ImageGenerator:
    """`generator.images(indices, ...)` gives grey levels (B, H, W, C), uint8."""

    name: str
    fingerprint: str  # of all that decides the images but the seed and the sampler
    model: UViT | SiT
    objective: DiffusionObjective | FlowObjective
    mean: tuple[float, ...]
    std: tuple[float, ...]
    device: str
    vae: VAE | None = None
    step: int | None = None  # of training, where it is a snapshot or a checkpoint

    def labels_of(self, indices: Sequence[int], classes: Sequence[int] | None) -> Tensor | None:
        """The class of each image, in turn; None for a model without classes."""
        if self.objective.classes is None:
            return None
        wanted = range(self.objective.classes) if classes is None else classes
        return torch.tensor([wanted[index % len(wanted)] for index in indices])

    @property
    def fitting(self) -> int:
        """Images at a time that fill the device."""
        return ON_CPU if self.device == "cpu" else ON_GPU

    def images(
        self,
        indices: Sequence[int],
        seed: int,
        sampling: Sampling,
        classes: Sequence[int] | None = None,
        *,
        at_once: int | None = None,
        bf16: bool = False,
    ) -> Tensor:
        """Images number `indices` of this seed, `at_once` at a time."""
        size = at_once or self.fitting

        def predict(x: Tensor, time_B: Tensor, labels_B: Tensor | None) -> Tensor:
            # The network alone: a sampler adds small steps to large numbers, which bf16 would lose.
            with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=bf16):
                return self.model(x, time_B, labels_B).float()

        pieces = [list(indices[first : first + size]) for first in range(0, len(indices), size)]
        return torch.cat([self._piece(predict, piece, size, seed, sampling, classes) for piece in pieces])

    def _piece(
        self,
        predict: Predict,
        indices: list[int],
        size: int,
        seed: int,
        sampling: Sampling,
        classes: Sequence[int] | None,
    ) -> Tensor:
        filled = indices + indices[-1:] * (size - len(indices))
        labels_B = self.labels_of(filled, classes)
        if labels_B is not None:
            assert self.objective.classes is not None
            labels_B = torch.where(labels_B < 0, self.objective.classes, labels_B).to(self.device)
        noise = SampleNoise(seed, filled, self.objective.shape, self.device)
        with torch.no_grad():
            samples = draw_samples(predict, self.objective, sampling, noise, labels_B, self.bounds())
        return self.to_levels(samples)[: len(indices)]

    @property
    def clips(self) -> bool:
        """Whether the predicted image can be clipped to the range of pixels."""
        return isinstance(self.objective, DiffusionObjective) and self.bounds() is not None

    def bounds(self) -> tuple[Tensor, Tensor] | None:
        """Black and white as the model sees them; latents have no bounds."""
        unknown = not any(self.mean) and set(self.std) == {1.0}  # imported latents of an unknown autoencoder
        if self.vae is not None or unknown:
            return None
        mean, std = (torch.tensor(values, device=self.device)[:, None, None] for values in (self.mean, self.std))
        return (0 - mean) / std, (1 - mean) / std

    def to_levels(self, samples_BCHW: Tensor) -> Tensor:
        """From what the model was trained on to grey levels."""
        if self.vae is not None:
            samples_BCHW = torch.cat([self.vae.decode(part).cpu() for part in samples_BCHW.split(DECODED)])
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return ((samples_BCHW.cpu() * std + mean).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1)


def open_generator(source: Path, device: str = "cpu", *, latent: str | None = None) -> ImageGenerator:
    """From a run (complete, or at its newest checkpoint), or from a folder that holds a diffusion model."""
    body = load_body(source, kinds=DENOISERS, use="for sample")
    denoiser = open_denoiser(body, device=device, latent=latent)
    return ImageGenerator(
        name=denoiser.name,
        fingerprint=fingerprint_of(denoiser.model.state_dict(), denoiser.description),
        model=denoiser.model,
        objective=denoiser.objective,
        mean=denoiser.mean,
        std=denoiser.std,
        device=device,
        vae=denoiser.vae,
        step=body.step,
    )


def check_request(generator: ImageGenerator, guidance: float, classes: Sequence[int] | None) -> None:
    """Refuse what a model without classes, or with fewer, cannot do."""
    known = generator.objective.classes
    if known is None and (guidance != 1.0 or classes is not None):
        asked = f"guidance is {guidance:g}" if guidance != 1.0 else f"classes is {tuple(classes or ())}"
        raise ConfigError(f"{asked}, but {generator.name} was trained without classes")
    wrong = [label for label in classes or () if known is not None and label >= known]
    if wrong or classes == ():
        raise ConfigError(f"classes is {tuple(classes or ())}; allowed: -1 (none) to {(known or 0) - 1}")
