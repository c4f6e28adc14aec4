"""Gaussian data, for which everything a diffusion model learns is known in closed form, in numpy."""

from __future__ import annotations

import numpy as np
import torch

ROTATION = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
MEAN = np.array([1.0, -0.5, 0.3])
VARIANCES = np.array([2.0, 0.5, 0.1])
COVARIANCE = ROTATION @ np.diag(VARIANCES) @ ROTATION.T


def numbers(path, t):
    """a, s, a', s' at a time, as floats."""
    return tuple(float(value) for value in path.at(torch.as_tensor(t, dtype=torch.float64)))


def moments(path, t):
    """The exact mean and covariance of x_t."""
    a, s, _, _ = numbers(path, t)
    return a * MEAN, a**2 * COVARIANCE + s**2 * np.eye(3)


def exact(kind, path):
    """The exact field: rows of x are samples."""

    def field(x, t):
        if t.ndim:  # every row has its own time
            return torch.cat([field(row[None], time) for row, time in zip(x, t.flatten())])
        a, s, da, ds = numbers(path, t)
        mean, covariance = moments(path, t)
        whitened = np.linalg.solve(covariance, (x.double().numpy() - mean).T).T
        if kind == "score":
            value = -whitened
        elif kind == "noise":
            value = s * whitened
        elif kind == "data":
            value = MEAN + a * whitened @ COVARIANCE
        else:  # the flow of a Gaussian: its mean moves, and its covariance by half its rate on either side
            value = da * MEAN + whitened @ (a * da * COVARIANCE + s * ds * np.eye(3))
        return torch.from_numpy(value).to(x.dtype)

    return field


class Probes:
    """A start and a source of noise that read off, exactly, the affine map that a sampler is.

    Row 0 starts at zero, the next three at the unit vectors; after them three rows for every draw of noise, which are
    zero but for a unit vector in that draw.
    """

    def __init__(self, draws: int = 0) -> None:
        self.rows, self.draw = 4 + 3 * draws, 0
        self.start = torch.zeros(self.rows, 3, dtype=torch.float64)
        self.start[1:4] = torch.eye(3)

    def __call__(self) -> torch.Tensor:
        noise = torch.zeros_like(self.start)
        noise[4 + 3 * self.draw : 7 + 3 * self.draw] = torch.eye(3)
        self.draw += 1
        return noise

    def moments(self, end, path, start_time):
        """Mean and covariance at the end when the start has the exact marginal of its time."""
        assert self.rows == 4 + 3 * self.draw, "the sampler drew as often as was said"
        end = end.numpy()
        offset, linear, kicks = end[0], end[1:4] - end[0], end[4:] - end[0]
        mean, covariance = moments(path, start_time)
        return mean @ linear + offset, linear.T @ covariance @ linear + kicks.T @ kicks


def distance(found, expected):
    """The largest error in any entry of the mean and the covariance."""
    return max(np.abs(a - b).max() for a, b in zip(found, expected))
