"""How are features made comparable in every direction? Centred, and scaled so that all directions vary equally.

Mean-pooled features of a masked autoencoder vary in a few directions, by which all images look alike: two photographs
have cosines above 0.99. What tells a copy from a similar image lies in the others.

Shapes: N rows, D dimensions.
"""

from __future__ import annotations

import numpy as np
import torch

from echoless.measures.inputs import Rows, check_features, row_blocks

SHRINKAGE = 0.1  # of the mean variance, added to that of every direction: noise is not blown up


def whitened(features_ND: Rows, shrinkage: float = SHRINKAGE) -> np.ndarray:
    """(features - mean) @ (covariance + shrinkage * its mean eigenvalue)^(-1/2), as float32."""
    check_features("features", features_ND, at_least=2)
    total_D = sum(block.sum(dim=0) for block in row_blocks(features_ND, torch.float64))
    mean_D = torch.as_tensor(total_D) / len(features_ND)
    covariance_DD = torch.zeros(len(mean_D), len(mean_D), dtype=torch.float64)
    for block_BD in row_blocks(features_ND, torch.float64):
        covariance_DD += (block_BD - mean_D).T @ (block_BD - mean_D)
    values_D, axes_DD = torch.linalg.eigh(covariance_DD / len(features_ND))
    scale_D = (values_D.clamp_min(0) + shrinkage * values_D.mean().clamp_min(1e-30)).rsqrt()
    turn_DD = (axes_DD * scale_D).float()
    return np.concatenate([((block_BD - mean_D.float()) @ turn_DD).numpy() for block_BD in row_blocks(features_ND)])
