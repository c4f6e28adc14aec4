"""Which image regions have similar features? The layer-distributed spectral embedding of Zhang et al. (2024).

Tokens are nodes, cosine similarities are edges, and the leading eigenvectors of the normalised graph group the tokens
that belong together, within and across images. Several layers share one embedding: their graphs are averaged.

- `spectral_embedding`: the eigenvectors themselves, by a sparse solver. The choice wherever the whole graph fits.
- `stochastic_embedding`: the paper's relaxation by gradient descent over mini-batches of images, where it does not.

CVPR 2024. Shapes: I images, P tokens each, T = I * P, D dimensions, K kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.errors import ConfigError, DataError
from echoless.measures.inputs import check_count, check_features

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

NEIGHBOURS = 50
WEAKEST_EDGE = 0.1
DENSE_NODES = 2000  # below it, all eigenvectors at once are quicker and cannot miss a repeated eigenvalue


class SpectralEmbedding(NamedTuple):
    """Leading eigenvectors of the random walk on the graph, without the constant one; eigenvalues descending."""

    vectors_TK: Tensor
    eigenvalues_K: Tensor


# Step 3 of the method: top-50 neighbours within the image and top-50 across images, above 0.1, symmetrised.
def affinity_graph(
    tokens_IPD: Tensor, *, within: int = NEIGHBOURS, across: int = NEIGHBOURS, weakest: float = WEAKEST_EDGE
) -> csr_matrix:
    """The sparse symmetric T x T graph of cosine similarities; no token is its own neighbour."""
    from scipy.sparse import coo_matrix

    if tokens_IPD.ndim != 3:
        raise DataError(f"tokens has shape {tuple(tokens_IPD.shape)}; allowed: (images, tokens, dimensions)")
    check_features("tokens", tokens_IPD.flatten(0, 1))
    check_count("within", within)
    check_count("across", across, at_least=0)
    images, tokens, _ = tokens_IPD.shape
    unit_IPD = F.normalize(tokens_IPD.detach().float(), dim=2)
    edges = [_edges_of_image(unit_IPD, image, within, across, weakest) for image in range(images)]
    source, target, weight = (torch.cat(parts).numpy() for parts in zip(*edges))
    count = images * tokens
    directed = coo_matrix((weight.astype(np.float64), (source, target)), shape=(count, count)).tocsr()
    return ((directed + directed.T) / 2).tocsr()


def _edges_of_image(
    unit_IPD: Tensor, image: int, within: int, across: int, weakest: float
) -> tuple[Tensor, Tensor, Tensor]:
    images, tokens, _ = unit_IPD.shape
    similarity_PT = unit_IPD[image] @ unit_IPD.flatten(0, 1).T
    similarity_PT[torch.arange(tokens), image * tokens + torch.arange(tokens)] = -torch.inf
    own = slice(image * tokens, (image + 1) * tokens)
    near = similarity_PT[:, own].topk(min(within, tokens), dim=1)
    similarity_PT[:, own] = -torch.inf
    far = similarity_PT.topk(min(across, (images - 1) * tokens), dim=1)
    weight = torch.cat([near.values, far.values], dim=1)
    target = torch.cat([near.indices + image * tokens, far.indices], dim=1)
    source = (image * tokens + torch.arange(tokens)).unsqueeze(1).expand_as(target)
    kept = weight > weakest
    return source[kept], target[kept], weight[kept]


def spectral_embedding(graphs: csr_matrix | Sequence[csr_matrix], dims: int) -> SpectralEmbedding:
    """The `dims` leading eigenvectors of the graph, or of the mean of several layers' graphs, each of total weight 1.

    K groups show in K - 1 of them. Deterministic: the solver's start is fixed, and the largest entry of a vector, in
    size, is positive.
    """
    check_count("dims", dims)
    layers = list(graphs) if isinstance(graphs, Sequence) else [graphs]
    if not layers:
        raise ConfigError("graphs is an empty list; allowed: one graph or more")
    nodes = layers[0].shape[0]
    if any(layer.shape != (nodes, nodes) for layer in layers):
        raise DataError(f"graphs have shapes {[layer.shape for layer in layers]}; they must have the same nodes")
    if dims >= nodes:
        raise ConfigError(f"dims is {dims}; allowed: below {nodes}, the number of nodes")
    graph = sum(layer / max(float(layer.sum()), np.finfo(np.float64).tiny) for layer in layers)
    root = np.sqrt(np.asarray(graph.sum(axis=1)).ravel())
    values, vectors = _leading(_normalised(graph), root, dims)
    # From the symmetric matrix to the random walk, whose vectors are constant on a group; then unit length.
    vectors = np.divide(vectors, root[:, None], out=np.zeros_like(vectors), where=root[:, None] > 0)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=0), np.finfo(np.float64).tiny)
    vectors *= np.where(vectors[np.abs(vectors).argmax(axis=0), np.arange(dims)] < 0, -1.0, 1.0)
    return SpectralEmbedding(torch.from_numpy(vectors), torch.from_numpy(values))


def _normalised(graph: csr_matrix) -> csr_matrix:
    """D^-1/2 W D^-1/2; a node without edges stays without."""
    from scipy.sparse import diags

    degree = np.asarray(graph.sum(axis=1)).ravel()
    inverse_root = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1.0)), 0.0)
    scale = diags(inverse_root)
    return (scale @ graph @ scale).tocsr()


def _leading(matrix: csr_matrix, root: np.ndarray, dims: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues and their vectors, with the trivial vector D^1/2 1 taken out of the matrix."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import LinearOperator, eigsh

    trivial = root / max(float(np.linalg.norm(root)), np.finfo(np.float64).tiny)
    nodes = len(root)
    if nodes <= DENSE_NODES:
        dense = matrix.toarray() - 2 * np.outer(trivial, trivial)
        values, vectors = eigh(dense, subset_by_index=(nodes - dims, nodes - 1))
    else:
        deflated = LinearOperator(
            matrix.shape, matvec=lambda x: matrix @ x - 2 * trivial * (trivial @ x.ravel()), dtype=np.float64
        )
        start = np.random.default_rng(0).standard_normal(nodes)
        values, vectors = eigsh(deflated, k=dims, which="LA", v0=start, ncv=min(nodes, max(4 * dims, 40)), tol=1e-8)
    order = np.argsort(-values, kind="stable")
    return values[order], vectors[:, order]


def stochastic_embedding(
    layers: Sequence[Tensor],
    *,
    generator: torch.Generator,
    channels: int = 100,
    epochs: int = 200,
    images_per_batch: int = 40,
    steps_per_batch: int = 5,
    lr: float = 1e-2,
    ema: float = 0.99,
) -> Tensor:
    """Softmax maps (I, P, channels) that almost diagonalise every layer's random walk, after an EMA over the steps.

    layers: one tensor (I, P, D) of token features per layer, all with the same images and tokens.
    With z_c a channel over all tokens of the batch, at unit length, and P the random walk, the loss is
    mean |z_c' P z_c - 1| + mean of the squared off-diagonal entries of Z'Z.
    The graph of a batch is fixed for a few AdamW steps.
    """
    for name, value in {"channels": channels, "epochs": epochs, "images_per_batch": images_per_batch}.items():
        check_count(name, value)
    if not layers or any(layer.ndim != 3 or layer.shape[:2] != layers[0].shape[:2] for layer in layers):
        shapes = [tuple(layer.shape) for layer in layers]
        raise DataError(f"layers have shapes {shapes}; allowed: (images, tokens, dimensions), images and tokens equal")
    images, tokens, _ = layers[0].shape
    maps = [m.requires_grad_(True) for m in torch.randn(images, tokens, channels, generator=generator).unbind()]
    averaged = [m.detach().clone() for m in maps]
    optimizer = torch.optim.AdamW(maps, lr=lr, weight_decay=0.0)
    for _ in range(epochs):
        for batch in torch.randperm(images, generator=generator).split(images_per_batch):
            walks = [_random_walk(affinity_graph(layer[batch])) for layer in layers]
            for _ in range(steps_per_batch):
                optimizer.zero_grad()  # to None, so that images outside the batch do not move
                _relaxed_cut(torch.stack([maps[i] for i in batch]), walks).backward()
                optimizer.step()
                for i in batch.tolist():
                    averaged[i].lerp_(maps[i].detach(), 1 - ema)
    return torch.stack(averaged).softmax(dim=2)


def _relaxed_cut(maps_BPC: Tensor, walks: Sequence[Tensor]) -> Tensor:
    channels_TC = F.normalize(maps_BPC.softmax(dim=2).flatten(0, 1), dim=0)
    stay = torch.stack([(channels_TC * (walk @ channels_TC)).sum(dim=0) for walk in walks])
    overlap_CC = channels_TC.T @ channels_TC
    overlap_CC = overlap_CC - torch.diag(overlap_CC.diagonal())
    return (stay - 1).abs().mean() + overlap_CC.square().mean()


def _random_walk(graph: csr_matrix) -> Tensor:
    """D^-1 W as a sparse tensor."""
    graph = graph.tocoo()
    degree = np.asarray(graph.sum(axis=1)).ravel()
    values = torch.from_numpy((graph.data / degree[graph.row]).astype(np.float32))
    index = torch.from_numpy(np.stack([graph.row, graph.col]).astype(np.int64))
    return torch.sparse_coo_tensor(index, values, graph.shape, check_invariants=False).coalesce()


def maps_to_vectors(maps_IPC: Tensor, dims: int) -> Tensor:
    """U * S of all tokens' unit-length maps, (T, dims): the stochastic counterpart of the eigenvectors."""
    tokens_TC = F.normalize(maps_IPC.flatten(0, 1).double(), dim=1)
    if not 1 <= dims <= tokens_TC.shape[1]:
        raise ConfigError(f"dims is {dims!r}; allowed: 1 to {tokens_TC.shape[1]}, the number of channels")
    _, vectors_CC = torch.linalg.eigh(tokens_TC.T @ tokens_TC)
    vectors_TK = tokens_TC @ vectors_CC.flip(1)[:, :dims]
    largest = vectors_TK.gather(0, vectors_TK.abs().argmax(dim=0, keepdim=True))
    return vectors_TK * torch.where(largest < 0, -1.0, 1.0)


def to_rgb(vectors_TK: Tensor, images: int, height: int, width: int, first: int = 0) -> Tensor:
    """Three vectors as (I, 3, H, W) in [0, 1]: one scale per channel for the whole set, so that colours compare."""
    if vectors_TK.shape[0] != images * height * width or vectors_TK.shape[1] < first + 3:
        raise DataError(
            f"vectors has shape {tuple(vectors_TK.shape)}; allowed: ({images * height * width}, {first + 3} or more)"
        )
    three = vectors_TK[:, first : first + 3].double()
    low, high = three.aminmax(dim=0)
    scaled = (three - low) / (high - low).clamp(min=torch.finfo(torch.float64).tiny)
    return scaled.float().view(images, height, width, 3).permute(0, 3, 1, 2).contiguous()
