"""What are the settings of shortcuts, ViT and masked autoencoder? Frozen and validated; no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from echoless.config.body import DEEPEST, WIDEST, AroundEncoder, TransformerBody, require_width
from echoless.config.checks import require, require_number, require_one_of, require_whole

Variant = Literal["faded", "identity", "scale_both", "scale_branch", "learnable", "magnitude_preserving", "none"]
Schedule = Literal["linear", "cosine", "constant"]
Per = Literal["sublayer", "block"]
Fade = Literal["both", "attention", "mlp"]
Decoder = Literal["long_skips", "plain"]
Taps = Literal["spread", "authors"]
InitScheme = Literal["default", "skipless"]
Positions = Literal["sincos", "learned", "rotary", "relative"]
Activation = Literal["gelu", "gelu_tanh", "silu"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortcutConfig:
    """The shortcuts: x <- alpha_l * x + f_l(x) for "faded", or a baseline."""

    variant: Variant = "faded"
    alpha_min: float | Literal["auto"] = "auto"  # alpha of the last shortcut; 1 is a standard residual network
    schedule: Schedule = "linear"
    per: Per = "sublayer"  # "sublayer": evenly over all shortcuts; "block": one alpha for both shortcuts of a block
    fade: Fade = "both"

    def __post_init__(self) -> None:
        require_one_of("variant", self.variant, get_args(Variant))
        if self.alpha_min != "auto":
            number = isinstance(self.alpha_min, int | float) and not isinstance(self.alpha_min, bool)
            good = number and 0.0 <= float(self.alpha_min) <= 1.0
            require(good, "alpha_min", self.alpha_min, "a number in [0, 1], or 'auto'")
        require_one_of("schedule", self.schedule, get_args(Schedule))
        require_one_of("per", self.per, get_args(Per))
        require_one_of("fade", self.fade, get_args(Fade))

    @property
    def carry(self) -> bool:
        """Whether there are shortcuts at all. Without them, no branch may be zero-initialised."""
        return self.variant != "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class ViTConfig(TransformerBody):
    """A pre-norm vision transformer; what other projects' bodies have besides is off unless named."""

    kind: ClassVar[str] = "vit"

    image_size: tuple[int, int] = (224, 224)  # height, width
    patch_size: int = 16
    channels: int = 3
    width: int = 768
    depth: int = 12
    heads: int = 12
    mlp_ratio: float = 4.0
    norm_eps: float = 1e-6
    final_norm: bool = False  # a LayerNorm after the last block (He et al. 2022); the faded encoder has none
    zero_init: bool = True  # the last linear of every branch starts at zero; not with variant "none"
    init_scheme: InitScheme = "default"  # "skipless": weights for blocks without shortcuts (arXiv:2510.00345)
    init_constants: tuple[float, float, float] = (2.0, 0.6, 3.0)  # its alpha, beta and c, as published for ViT-B
    class_token: bool = True  # I-JEPA has none
    registers: int = 0  # learned tokens after the class token (arXiv:2309.16588); the second token of DeiT is one
    positions: Positions = "sincos"  # fixed table, learned table, rotary (DINOv3), or relative biases (BEiT)
    rope_theta: float = 100.0  # longest period of rotary positions
    antialias_positions: bool = True  # how a table is interpolated to fewer patches; DINOv2, ViT and others: without
    layer_scale: float | None = None  # first value of a learned factor per channel of every branch; None: no factor
    gated_mlp: bool = False  # activation(gate) * value instead of activation(value)
    activation: Activation = "gelu"
    shortcuts: ShortcutConfig = field(default_factory=ShortcutConfig)

    def __post_init__(self) -> None:
        self.require_sizes()
        require_one_of("init_scheme", self.init_scheme, get_args(InitScheme))
        require(len(self.init_constants) == 3, "init_constants", self.init_constants, "alpha, beta and c")
        for name, value, low in zip(("alpha", "beta", "c"), self.init_constants, (0, -1e6, 1e-6)):
            require_number(f"{name} of init_constants", value, low, 1e6)
        require_whole("registers", self.registers, 0, 4096)
        require_one_of("positions", self.positions, get_args(Positions))
        require_one_of("activation", self.activation, get_args(Activation))
        require_number("rope_theta", self.rope_theta, 0, 1e9, ends="(]")
        if self.layer_scale is not None:
            require_number("layer_scale", self.layer_scale, -1e6, 1e6)
        if self.positions == "rotary":
            require((self.width // self.heads) % 4 == 0, "heads", self.heads, "heads of a width that 4 divides")
        if self.positions == "relative":
            only = "0 with relative positions, which are of the class token and the patches alone"
            require(self.registers == 0, "registers", self.registers, only)
            require(self.class_token, "class_token", self.class_token, "True with relative positions")

    @property
    def body(self) -> ViTConfig:
        return self

    @property
    def title(self) -> str:
        """The sizes, and what is named besides."""
        named = [f"{self.registers} registers"] if self.registers else []
        named += [] if self.positions == "sincos" else [f"{self.positions} positions"]
        named += ["layer scale"] if self.layer_scale is not None else []
        named += ["gated MLP"] if self.gated_mlp else []
        named += [] if self.class_token else ["no class token"]
        return ", ".join([self.sizes, *named])

    @property
    def has_class_token(self) -> bool:  # type: ignore[override]  # the same for all of the other bodies
        return self.class_token

    @property
    def feature_layers(self) -> tuple[str, ...]:
        """The blocks' outputs, then the final norm, where there is one."""
        blocks = tuple(f"block{index:02d}/+mlp" for index in range(self.depth))
        return (*blocks, "norm") if self.final_norm else blocks

    @property
    def extra_tokens(self) -> int:
        """The class token and the registers."""
        return self.class_token + self.registers


@dataclass(frozen=True, kw_only=True, slots=True)
class MAEConfig(AroundEncoder[ViTConfig]):
    """A masked autoencoder: a ViT encoder, and a decoder with long skips (the paper) or without (He et al. 2022)."""

    kind: ClassVar[str] = "mae"

    encoder: ViTConfig = field(default_factory=ViTConfig)
    decoder: Decoder = "long_skips"
    decoder_width: int = 512
    decoder_depth: int = 8
    decoder_heads: int = 16
    taps: Taps = "spread"  # encoder blocks that feed the long skips, where the decoder has too few blocks for all

    def __post_init__(self) -> None:
        require_one_of("decoder", self.decoder, get_args(Decoder))
        require_one_of("taps", self.taps, get_args(Taps))
        require_whole("decoder_width", self.decoder_width, 1, WIDEST)
        require_whole("decoder_depth", self.decoder_depth, 1, DEEPEST)
        require_whole("decoder_heads", self.decoder_heads, 1)
        require_width("decoder_width", self.decoder_width, "decoder_heads", self.decoder_heads)

    @property
    def title(self) -> str:
        return f"masked autoencoder ({self.decoder}), encoder {self.encoder.title}"

    @property
    def decoder_kept_values(self) -> int:
        """As `kept_values` of a body, of the decoder, which sees every patch."""
        rows, columns = self.encoder.grid
        return 16 * self.decoder_width * self.decoder_depth * rows * columns
