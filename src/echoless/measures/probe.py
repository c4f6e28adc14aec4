"""How well does a linear layer on frozen features classify? Three named protocols.

- `quick_probe`: multinomial logistic regression on standardised features, to convergence. The default.
- `imagenet100_probe`: the protocol of arXiv:2404.10947 on ImageNet-100: AdamW, 200 epochs, no augmentation.
- `mae_probe`: the protocol of arXiv:2111.06377: batch norm without affine, LARS, 90 epochs of augmented images.

Each returns a `LinearProbe`. Shapes: N training rows, B rows of a batch, D dimensions, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.errors import ConfigError, DataError
from echoless.measures.inputs import Rows, as_labels, check_count, check_features, read_rows
from echoless.measures.logistic import choose_penalty, fit_logistic, refine

PREDICTION_TILE = 4096
Batches = Iterable[tuple[Tensor, Tensor]]  # (features_BD, labels_B)


@dataclass(frozen=True)
class LinearProbe:
    """A trained probe: logits = (features - mean) * scale @ weight + bias. `settings` says how it was trained."""

    mean_D: Tensor
    scale_D: Tensor
    weight_DC: Tensor
    bias_C: Tensor
    classes_C: Tensor
    settings: dict[str, float]

    def logits(self, features_MD: Rows) -> Tensor:
        """Always computed in zero-padded tiles of one shape, so that a row's result does not depend on other rows."""
        check_features("features", features_MD)
        if features_MD.shape[1] != len(self.mean_D):
            raise DataError(
                f"features has {features_MD.shape[1]} dimensions; allowed: {len(self.mean_D)}, as in training"
            )
        parts = []
        for start in range(0, len(features_MD), PREDICTION_TILE):
            rows = (read_rows(features_MD, start, start + PREDICTION_TILE) - self.mean_D) * self.scale_D
            padded = F.pad(rows, (0, 0, 0, PREDICTION_TILE - len(rows)))
            parts.append(torch.addmm(self.bias_C, padded, self.weight_DC)[: len(rows)])
        return torch.cat(parts)

    def predict(self, features_MD: Rows) -> Tensor:
        """The label with the largest logit; the smaller label among equals."""
        return self.classes_C[self.logits(features_MD).argmax(dim=1)]


def quick_probe(
    train_ND: Rows,
    train_labels_N: Rows,
    *,
    generator: torch.Generator,
    penalty: float | None = None,
    groups_N: Tensor | None = None,
) -> LinearProbe:
    """Full-batch L-BFGS. The penalty (1 / C of scikit-learn) is chosen on held-out training rows unless given.

    groups_N: rows of one group are held out together.
    """
    features_ND, classes_C, targets_N = _training_set(train_ND, train_labels_N)
    if penalty is not None and not (math.isfinite(penalty) and penalty > 0):
        raise ConfigError(f"penalty is {penalty!r}; allowed: a finite number above 0")
    mean_D = features_ND.mean(dim=0)
    centred_ND = features_ND - mean_D
    deviation_D = torch.linalg.vector_norm(centred_ND, dim=0) / math.sqrt(len(features_ND))
    # A constant feature has nothing to say; what rounding leaves of it must not be blown up to unit variance.
    scale_D = torch.where(deviation_D > 1e-6 * mean_D.abs(), deviation_D.reciprocal(), 0.0)
    standard_ND = centred_ND.mul_(scale_D)
    if penalty is None:
        penalty, start = choose_penalty(standard_ND, targets_N, len(classes_C), generator, groups_N)
        weight_CD, bias_C = refine(standard_ND, targets_N, penalty, start, generator)
    else:
        weight_CD, bias_C = fit_logistic(standard_ND, targets_N, len(classes_C), penalty)
    return LinearProbe(mean_D, scale_D, weight_CD.T.contiguous(), bias_C, classes_C, {"penalty": penalty})


# The ImageNet-100 probe in the code of the authors of arXiv:2404.10947.
def imagenet100_probe(
    train_ND: Rows,
    train_labels_N: Rows,
    *,
    generator: torch.Generator,
    epochs: int = 200,
    batch_size: int = 1024,
    lr: float = 1e-2,
) -> LinearProbe:
    """One linear layer on the features as they are: AdamW with torch's weight decay, cosine by epoch."""
    check_count("epochs", epochs)
    check_count("batch_size", batch_size)
    features_ND, classes_C, targets_N = _training_set(train_ND, train_labels_N)
    dim = features_ND.shape[1]
    head = _linear_head(dim, len(classes_C))
    for parameter in head.parameters():
        nn.init.uniform_(parameter, -(dim**-0.5), dim**-0.5, generator=generator)  # the default of nn.Linear
    optimizer = torch.optim.AdamW(head.parameters(), lr=lr)
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = lr * _cosine(epoch / epochs)
        for features_BD, targets_B in shuffled_batches(features_ND, targets_N, batch_size, generator=generator):
            _descend(optimizer, head(features_BD), targets_B)
    settings = {"epochs": epochs, "batch_size": batch_size, "lr": lr}
    return _finished(torch.zeros(dim), torch.ones(dim), head, classes_C, settings)


# The linear probe of arXiv:2111.06377 and of its authors' code.
def mae_probe(
    batches_of_epoch: Callable[[int], Batches],
    *,
    steps_per_epoch: int,
    dim: int,
    classes: int,
    batch_size: int,
    generator: torch.Generator,
    epochs: int = 90,
    warmup_epochs: int = 10,
    base_lr: float = 0.1,
) -> LinearProbe:
    """The head of the MAE protocol; `batches_of_epoch(e)` gives the features of epoch e, freshly augmented.

    Labels are 0 .. classes - 1. The learning rate is base_lr * batch_size / 256.
    """
    for name, value in {"steps_per_epoch": steps_per_epoch, "dim": dim, "classes": classes, "epochs": epochs}.items():
        check_count(name, value)
    check_count("batch_size", batch_size, at_least=2)
    peak = base_lr * batch_size / 256
    norm = nn.BatchNorm1d(dim, affine=False, eps=1e-6)
    head = _linear_head(dim, classes)
    nn.init.trunc_normal_(head.weight, std=0.01, generator=generator)
    optimizer = LARS(head.parameters(), lr=peak)
    for epoch in range(epochs):
        for step, (features_BD, labels_B) in enumerate(batches_of_epoch(epoch)):
            _check_batch(features_BD, labels_B, dim, classes)
            optimizer.param_groups[0]["lr"] = peak * _warmup_cosine(
                epoch + step / steps_per_epoch, warmup_epochs, epochs
            )
            _descend(optimizer, head(norm(features_BD.float())), labels_B.long())
    assert norm.running_mean is not None and norm.running_var is not None
    scale_D = (norm.running_var + norm.eps).rsqrt()
    settings = {"epochs": epochs, "batch_size": batch_size, "base_lr": base_lr, "warmup_epochs": warmup_epochs}
    return _finished(norm.running_mean, scale_D, head, torch.arange(classes), settings)


# LARS, arXiv:1708.03888, without weight decay.
class LARS(torch.optim.Optimizer):
    """SGD with momentum whose step for a matrix is trust * |weight| / |gradient| long; vectors are left alone."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.9, trust: float = 0.001) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "trust": trust})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, float]) -> None:
        if parameter.ndim > 1:
            size, slope = parameter.norm(), gradient.norm()
            ratio = torch.where((size > 0) & (slope > 0), group["trust"] * size / slope, 1.0)
            gradient = gradient * ratio
        state = self.state[parameter]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(parameter)
        state["velocity"].mul_(group["momentum"]).add_(gradient)
        parameter.sub_(state["velocity"], alpha=group["lr"])


def shuffled_batches(
    features_ND: Tensor, labels_N: Tensor, batch_size: int, *, generator: torch.Generator, drop_last: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch of cached features in random order."""
    for index_B in torch.randperm(len(labels_N), generator=generator).split(batch_size):
        if len(index_B) == batch_size or not drop_last:
            yield features_ND[index_B], labels_N[index_B]


def _training_set(train_ND: Rows, train_labels_N: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """The features in memory, the classes, and each row's class number."""
    check_features("train", train_ND)
    labels_N = as_labels("train_labels", train_labels_N, len(train_ND))
    classes_C, targets_N = labels_N.unique(return_inverse=True)
    if len(classes_C) < 2:
        raise DataError(f"train_labels holds one class, {int(classes_C[0])}; allowed: two classes or more")
    return read_rows(train_ND, 0, len(train_ND)), classes_C, targets_N


def _check_batch(features_BD: Tensor, labels_B: Tensor, dim: int, classes: int) -> None:
    if features_BD.ndim != 2 or features_BD.shape[1] != dim or len(features_BD) < 2:
        raise DataError(f"a batch has shape {tuple(features_BD.shape)}; allowed: (2 or more, {dim})")
    if len(labels_B) != len(features_BD) or not 0 <= int(labels_B.min()) <= int(labels_B.max()) < classes:
        raise DataError(f"a batch has {len(labels_B)} labels; allowed: {len(features_BD)} labels in 0 .. {classes - 1}")


def _linear_head(dim: int, classes: int) -> nn.Linear:
    """A zero-initialised linear layer that does not use the global generator."""
    head = nn.Linear(dim, classes, device="meta")
    head.weight, head.bias = nn.Parameter(torch.zeros(classes, dim)), nn.Parameter(torch.zeros(classes))
    return head


def _descend(optimizer: torch.optim.Optimizer, logits_BC: Tensor, targets_B: Tensor) -> None:
    optimizer.zero_grad()
    F.cross_entropy(logits_BC, targets_B).backward()
    optimizer.step()


def _finished(mean_D: Tensor, scale_D: Tensor, head: nn.Linear, classes_C: Tensor, settings: dict) -> LinearProbe:
    weight_DC = head.weight.detach().T.contiguous()
    if not weight_DC.isfinite().all():
        raise DataError(f"the probe diverged with {settings}; the features may be too large for its learning rate")
    return LinearProbe(mean_D, scale_D, weight_DC, head.bias.detach(), classes_C, settings)


def _cosine(progress: float) -> float:
    """From 1 to 0."""
    return (1 + math.cos(math.pi * progress)) / 2


def _warmup_cosine(epoch: float, warmup_epochs: int, epochs: int) -> float:
    if epoch < warmup_epochs:
        return epoch / warmup_epochs
    return _cosine((epoch - warmup_epochs) / (epochs - warmup_epochs))
