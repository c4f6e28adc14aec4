"""How is a transformer without shortcuts initialised, so that it can be trained (arXiv:2510.00345)?

Without a shortcut a layer's Jacobian must itself be well conditioned. Where every token attends to itself, that
Jacobian is W_V W_O, so: attention starts near the identity, and W_V W_O is a multiple of an orthogonal matrix.

    W_V = c U, W_O = c V^T                   from the SVD of one Gaussian matrix, over all heads together
    W_Q W_K^T ~ alpha Z + beta I             per head, Z_ij ~ N(0, 1/d), the best approximation of rank head_dim
    MLP: scale-corrected uniform orthogonal  (Martens et al. 2021): Haar times max(sqrt(out / in), 1)

Row vectors, y = x W. Biases start at zero, norms are kept, LayerScale gains are 1, drop path is off. This is only the
initialisation; `variant="none"` or `fade(model, 0.0, schedule="constant", ...)` removes the shortcuts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from echoless.shortcuts.transformer import Projection, SelfAttention, find_blocks

_DROP_PATH = ("droppath", "stochasticdepth")


@torch.no_grad()
def init_skipless_(
    model: nn.Module,
    alpha: float = 2.0,
    beta: float = 0.6,
    c: float = 3.0,
    *,
    generator: torch.Generator | None = None,
    example: object = None,
) -> tuple[str, ...]:
    """Initialises the weights of every pre-norm block in place; returns the names of the blocks.

    alpha, beta, c: 2, 0.6, 3 for a ViT-B trained on labels; 1.8, 1, 3 for a ViT-S trained by DINO.
    example: input of one forward, for models whose blocks need more arguments than their tokens.

    A model that is not made of pre-norm transformer blocks is refused and not changed.
    """
    for name, value in (("alpha", alpha), ("beta", beta), ("c", c)):
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} is {value!r}; allowed: a finite number")
    if alpha < 0:
        raise ValueError(f"alpha is {alpha!r}; allowed: a finite number, 0 or more")
    if c <= 0:
        raise ValueError(f"c is {c!r}; allowed: a finite number above 0")
    blocks = find_blocks(model, example)
    for block in blocks:
        _draw_values_and_output(block.attention, c, generator)
        _draw_queries_and_keys(block.attention, alpha, beta, generator)
        for layer in block.mlp:
            inputs, outputs = layer.matrix.shape
            layer.matrix.copy_(uniform_orthogonal(inputs, outputs, generator))
        attention = block.attention
        for projection in (attention.query, attention.key, attention.value, attention.output, *block.mlp):
            _zero_offset(projection)
        for scale in block.scales:
            scale.fill_(1.0)
    _turn_off_drop_path(model)
    return tuple(block.name for block in blocks)


# Section 4 of arXiv:2510.00345: Q = U S V^T, W_V = c U, W_O = c V^T.
def orthogonal_pair(width: int, c: float, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """W_V and W_O, whose product is c^2 times an orthogonal matrix."""
    U, _, Vh = torch.linalg.svd(_gaussian(width, width, generator))
    return c * U, c * Vh


# Section 4 of arXiv:2510.00345, factored per head as in arXiv:2305.09828: W_Q = U_k S_k^(1/2), W_K = V_k S_k^(1/2).
def query_key_pair(
    width: int, heads: int, alpha: float, beta: float, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """W_Q and W_K (heads, width, head_dim): W_Q W_K^T is the best rank-head_dim approximation of alpha Z + beta I.

    The leading singular vectors are eigenvectors of M^T M, which is half the work of an SVD. In double precision the
    squaring costs nothing that matters: only singular values near the largest are kept.
    """
    identity = torch.eye(width, dtype=torch.float64)
    queries, keys = [], []
    for _ in range(heads):
        target = alpha / math.sqrt(width) * _gaussian(width, width, generator).cpu() + beta * identity
        squares, vectors = torch.linalg.eigh(target.T @ target)  # ascending
        kept = slice(width - width // heads, width)
        roots = squares[kept].clamp(min=torch.finfo(torch.float64).tiny).pow(0.25)  # of the singular values
        queries.append(target @ vectors[:, kept] / roots)
        keys.append(vectors[:, kept] * roots)
    return torch.stack(queries), torch.stack(keys)


# SUO, appendix of arXiv:2110.01765.
def uniform_orthogonal(inputs: int, outputs: int, generator: torch.Generator | None = None) -> Tensor:
    """W (inputs, outputs): orthonormal rows or columns, longer by sqrt(outputs / inputs) where the layer widens."""
    matrix = torch.empty(inputs, outputs, device="cpu" if generator is None else generator.device)
    return nn.init.orthogonal_(matrix, gain=max(math.sqrt(outputs / inputs), 1.0), generator=generator)


def _draw_values_and_output(attention: SelfAttention, c: float, generator: torch.Generator | None) -> None:
    value, output = orthogonal_pair(attention.width, c, generator)
    attention.value.matrix.copy_(value)
    attention.output.matrix.copy_(output)


def _draw_queries_and_keys(
    attention: SelfAttention, alpha: float, beta: float, generator: torch.Generator | None
) -> None:
    pair = query_key_pair(attention.width, attention.heads, alpha, beta, generator)
    for projection, drawn in zip((attention.query, attention.key), pair):
        projection.matrix.copy_(drawn.transpose(0, 1).flatten(1))  # the heads side by side


def _gaussian(rows: int, columns: int, generator: torch.Generator | None) -> Tensor:
    device = "cpu" if generator is None else generator.device
    return torch.randn(rows, columns, dtype=torch.float64, generator=generator, device=device)


def _zero_offset(projection: Projection) -> None:
    if projection.offset is not None:
        projection.offset.zero_()


def _turn_off_drop_path(model: nn.Module) -> None:
    for module in model.modules():
        if type(module).__name__.lower().endswith(_DROP_PATH):
            for name in ("drop_prob", "p"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, 0.0)
