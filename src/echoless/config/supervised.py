"""What are the settings of a classifier and its objective? Frozen and validated; no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from echoless.config.body import AroundEncoder
from echoless.config.checks import require_number, require_one_of, require_whole
from echoless.config.model import ViTConfig
from echoless.config.resnet import ResNetConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierConfig(AroundEncoder[ViTConfig | ResNetConfig]):
    """A ViT or a ResNet with a linear head on its pooled output."""

    kind: ClassVar[str] = "classifier"

    encoder: ViTConfig | ResNetConfig = field(default_factory=ViTConfig)
    classes: int = 10
    pooling: Literal["patch_mean", "cls"] = "patch_mean"  # a ResNet has no class token: the mean over its map

    def __post_init__(self) -> None:
        require_whole("classes", self.classes, 2)
        require_one_of(
            "pooling", self.pooling, ("patch_mean", "cls") if self.encoder.has_class_token else ("patch_mean",)
        )

    @property
    def title(self) -> str:
        return f"classifier of {self.classes} classes, encoder {self.encoder.title}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisedConfig:
    """Cross-entropy with the regularisers of He et al. 2022; each is off at 0."""

    kind: ClassVar[str] = "supervised"

    label_smoothing: float = 0.1
    mixup: float = 0.8  # parameter of the Beta distribution of the mixing weight
    cutmix: float = 1.0
    erase: float = 0.25  # probability that a rectangle of an image is replaced by noise per pixel, before mixing
    rand_augment: float | None = None  # magnitude, 0 to 10, as timm's rand-mM-mstd0.5-inc1; None: none
    drop_path: float = 0.1  # probability of dropping a branch, rising linearly with depth to this

    def __post_init__(self) -> None:
        require_number("label_smoothing", self.label_smoothing, 0, 1, ends="[)")
        require_number("mixup", self.mixup, 0, 100)
        require_number("cutmix", self.cutmix, 0, 100)
        require_number("erase", self.erase, 0, 1)
        require_number("drop_path", self.drop_path, 0, 1, ends="[)")
        if self.rand_augment is not None:
            require_number("rand_augment", self.rand_augment, 0, 10)
