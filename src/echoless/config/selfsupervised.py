"""What are the settings of MoCo v3 and DINO, and of their losses? No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from echoless.config.body import AroundEncoder
from echoless.config.checks import require, require_number, require_whole
from echoless.config.model import ViTConfig
from echoless.config.views import ViewConfig

Scale = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class MoCoConfig(AroundEncoder[ViTConfig]):
    """An encoder, a projector and a predictor; encoder and projector again as a moving average (MoCo v3)."""

    kind: ClassVar[str] = "moco"

    encoder: ViTConfig = field(default_factory=ViTConfig)
    hidden: int = 4096  # width inside projector and predictor
    output: int = 256

    def __post_init__(self) -> None:
        _require_class_token(self.encoder, "MoCo v3")
        for name in ("hidden", "output"):
            require_whole(name, getattr(self, name), 1)

    @property
    def title(self) -> str:
        return f"MoCo v3, encoder {self.encoder.title}"


@dataclass(frozen=True, kw_only=True, slots=True)
class DINOConfig(AroundEncoder[ViTConfig]):
    """A student and a teacher, each an encoder and a head that compares a bottleneck with prototypes."""

    kind: ClassVar[str] = "dino"

    encoder: ViTConfig = field(default_factory=ViTConfig)
    hidden: int = 2048
    bottleneck: int = 256
    prototypes: int = 65_536

    def __post_init__(self) -> None:
        _require_class_token(self.encoder, "DINO")
        for name in ("hidden", "bottleneck", "prototypes"):
            require_whole(name, getattr(self, name), 1)

    @property
    def title(self) -> str:
        return f"DINO, encoder {self.encoder.title}"


@dataclass(frozen=True, kw_only=True, slots=True)
class InfoNCEConfig:
    """InfoNCE (MoCo v3): each view is classified among the other views of the whole batch."""

    kind: ClassVar[str] = "infonce"
    whole_batch: ClassVar[bool] = True  # samples are compared with each other, so a batch cannot be cut into pieces

    temperature: float = 0.2
    momentum: float = 0.99  # of the momentum encoder, rising to 1 over the run

    def __post_init__(self) -> None:
        require_number("temperature", self.temperature, 0, 100, ends="(]")
        require_number("momentum", self.momentum, 0, 1)

    def views(self, encoder: ViTConfig, scale: Scale, flip: float) -> tuple[ViewConfig, ...]:
        return two_views(encoder.image_size, scale, flip)


@dataclass(frozen=True, kw_only=True, slots=True)
class DistillationConfig:
    """Self-distillation (DINO): the student matches the teacher's output on every view."""

    kind: ClassVar[str] = "distillation"

    student_temperature: float = 0.1
    teacher_temperature: tuple[float, float] = (0.04, 0.04)  # at the start, and after the warm-up
    temperature_warmup: float = 0.1  # share of the run
    centre_momentum: float = 0.9
    momentum: float = 0.996  # of the teacher, rising to 1 over the run
    freeze_prototypes: float = 0.01  # share of the run in which the last layer stays as it is
    local_views: int = 8
    local_scale: Scale = (0.05, 0.4)  # share of the area
    local_side: float = 0.43  # of the image's side, rounded to whole patches
    drop_path: float = 0.0  # of the student: probability of dropping a branch, rising linearly with depth to this

    def __post_init__(self) -> None:
        for temperature in (self.student_temperature, *self.teacher_temperature):
            require_number("temperature", temperature, 0, 100, ends="(]")
        for name in ("temperature_warmup", "centre_momentum", "momentum", "freeze_prototypes"):
            require_number(name, getattr(self, name), 0, 1)
        require_whole("local_views", self.local_views, 0, 64)
        low, high = self.local_scale
        require(0 < low <= high <= 1, "local_scale", self.local_scale, "two numbers, 0 < low <= high <= 1")
        require_number("local_side", self.local_side, 0, 1, ends="(]")
        require_number("drop_path", self.drop_path, 0, 1, ends="[)")

    def views(self, encoder: ViTConfig, scale: Scale, flip: float) -> tuple[ViewConfig, ...]:
        """Two large ones, then the small ones."""
        patch = encoder.patch_size
        height, width = (max(1, round(self.local_side * side / patch)) * patch for side in encoder.image_size)
        local = ViewConfig(size=(height, width), scale=self.local_scale, flip=flip, blur=0.5)
        return (*two_views(encoder.image_size, scale, flip), *(local,) * self.local_views)


# The two augmentations of BYOL (arXiv:2006.07733, appendix B), which MoCo v3 and DINO share.
def two_views(size: tuple[int, int], scale: Scale, flip: float) -> tuple[ViewConfig, ...]:
    return (
        ViewConfig(size=size, scale=scale, flip=flip, blur=1.0),
        ViewConfig(size=size, scale=scale, flip=flip, blur=0.1, solarise=0.2),
    )


def _require_class_token(encoder: ViTConfig, method: str) -> None:
    require(encoder.class_token, "class_token", encoder.class_token, f"True with {method}, which compares class tokens")
