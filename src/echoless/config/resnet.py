"""What are the settings of a ResNet? Frozen and validated; no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from echoless.config.body import require_image_size
from echoless.config.checks import require, require_one_of, require_whole
from echoless.config.model import ShortcutConfig

STAGES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ResNetConfig:
    """ResNet-18 (arXiv:1512.03385), or the same with more blocks in its third stage (B.2 of arXiv:2404.10947)."""

    kind: ClassVar[str] = "resnet"
    denoises: ClassVar[bool] = False
    has_class_token: ClassVar[bool] = False

    image_size: tuple[int, int] = (224, 224)  # height, width
    channels: int = 3
    width: int = 64  # of the first stage; each stage doubles it
    third_stage: int = 2  # blocks of the third stage; the others have two. 2 is ResNet-18, 10 has 16 blocks
    stem: Literal["imagenet", "cifar"] = "imagenet"  # 7 x 7 with stride and pooling, or 3 x 3 for small images
    shortcuts: ShortcutConfig = field(default_factory=lambda: ShortcutConfig(alpha_min=1.0))

    def __post_init__(self) -> None:
        for name in ("channels", "width"):
            require_whole(name, getattr(self, name), 1)
        require_whole("third_stage", self.third_stage, 1, 1000)
        require_one_of("stem", self.stem, ("imagenet", "cifar"))
        require_image_size(self.image_size)
        splits = self.shortcuts.per != "sublayer" or self.shortcuts.fade != "both"
        allowed = "sublayer and both, because a ResNet's blocks have one shortcut each"
        require(not splits, "per and fade", (self.shortcuts.per, self.shortcuts.fade), allowed)

    @property
    def stages(self) -> tuple[int, ...]:
        """Blocks of each stage."""
        return 2, 2, self.third_stage, 2

    @property
    def blocks(self) -> int:
        return sum(self.stages)

    @property
    def extra_tokens(self) -> int:
        """None: the tokens are the positions of the feature map."""
        return 0

    @property
    def grid(self) -> None:
        """None: the stages differ in resolution."""
        return None

    @property
    def feature_layers(self) -> tuple[str, ...]:
        return tuple(f"block{index:02d}/+conv" for index in range(self.blocks))

    @property
    def feature_width(self) -> int:
        """Channels of the last stage."""
        return self.width * 2 ** (STAGES - 1)

    @property
    def branches(self) -> int:
        return self.blocks

    @property
    def body(self) -> ResNetConfig:
        return self

    @property
    def title(self) -> str:
        return (
            f"ResNet of {self.blocks} blocks, {self.width} channels at first, {' x '.join(map(str, self.image_size))}"
        )

    @property
    def fades_over(self) -> dict[str, int]:
        return {"shortcuts": self.blocks}

    @property
    def multiplications(self) -> int:
        # Twice the channels on a quarter of the places: every block costs the same, two 3 x 3 convolutions.
        places = math.prod(self.image_size) // (16 if self.stem == "imagenet" else 1)
        return self.blocks * 2 * 9 * self.width**2 * places

    @property
    def kept_values(self) -> int:
        # Of a block: the results of both convolutions and of both norms. A stage has half the values of the one before.
        places = math.prod(self.image_size) // (16 if self.stem == "imagenet" else 1)
        return sum(4 * count * self.width * places // 2**stage for stage, count in enumerate(self.stages))
