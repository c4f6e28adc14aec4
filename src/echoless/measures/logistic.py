"""How is multinomial logistic regression fitted? Preconditioned L-BFGS on

    sum over rows of -log softmax(x W^T + b)[target]  +  penalty / 2 * |W|^2,        divided by the number of rows N

the objective of scikit-learn's LogisticRegression with C = 1 / penalty (the bias is not penalised). L-BFGS runs on
W P^-1 with P = (covariance / C + penalty / N)^(-1/2), which turns the Hessian at the start into the identity: a few
iterations then do what takes hundreds on correlated features. Gradients are written out and summed over blocks of
rows, each read once for loss and gradient while it is in the cache. Shapes: N rows, R of a block, D dimensions, C
classes.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from echoless.measures.splits import stratified_folds
from echoless.measures.threads import one_thread_each

PENALTIES = (1e4, 1e3, 1e2, 1e1, 1e0, 1e-1, 1e-2)
SELECTION_ROWS = 5000
HELD_OUT_FOLDS = 10
GRADIENT_TOLERANCE = 1e-4  # largest entry, where the Hessian is about 1: a mean loss less than 1e-4 above the minimum
SELECTION_TOLERANCE = 2e-3
STAGE_SHARE = 3  # a third of the rows first: a pass over them costs a third
STAGE_TOLERANCE = 5e-4
MOST_ITERATIONS = 300
BLOCK_ROWS = 4096

Solution = tuple[Tensor, Tensor]  # weight_CD, bias_C
Spectrum = tuple[Tensor, Tensor]  # eigenvalues_D, eigenvectors_DD


def fit_logistic(
    features_ND: Tensor,
    targets_N: Tensor,
    classes: int,
    penalty: float,
    start: Solution | None = None,
    tolerance: float = GRADIENT_TOLERANCE,
    spectrum: Spectrum | None = None,
) -> Solution:
    """The minimiser, reached from `start` or from zero. The features should have unit variance.

    spectrum: `covariance_spectrum(features)`, where the same features are fitted more than once.
    """
    n, dim = features_ND.shape
    decay = penalty / n
    precondition_DD, back_DD = _preconditioner(spectrum or covariance_spectrum(features_ND), classes, decay)
    solution_CE = torch.zeros(classes, dim + 1)  # preconditioned weights, then the bias
    if start is not None:
        solution_CE = torch.cat([start[0] @ back_DD, start[1].unsqueeze(1)], dim=1)
    solution_CE.requires_grad_(True)
    optimizer = torch.optim.LBFGS(
        [solution_CE],
        max_iter=MOST_ITERATIONS,
        tolerance_grad=tolerance,
        tolerance_change=1e-9,
        history_size=20,
        line_search_fn="strong_wolfe",
    )
    rows = math.ceil(n / math.ceil(n / BLOCK_ROWS))  # equal blocks, so that no thread waits for a larger one
    blocks = list(zip(features_ND.split(rows), targets_N.split(rows)))

    @torch.no_grad()
    def objective() -> Tensor:
        weight_CD, bias_C = solution_CE[:, :dim] @ precondition_DD, solution_CE[:, dim]
        loss, slope_CD, slope_C = torch.zeros((), dtype=torch.float64), decay * n * weight_CD, torch.zeros(classes)
        for part in pool.map(partial(_loss_and_slopes, weight_CD, bias_C), blocks):  # in order: so are the sums
            for total, summand in zip((loss, slope_CD, slope_C), part):
                total += summand
        for total in (loss, slope_CD, slope_C):
            total /= n
        solution_CE.grad = torch.cat([slope_CD @ precondition_DD, slope_C.unsqueeze(1)], dim=1)
        return loss + decay / 2 * weight_CD.square().sum()

    with one_thread_each() as pool:
        optimizer.step(objective)
    solution_CE = solution_CE.detach()
    return solution_CE[:, :dim] @ precondition_DD, solution_CE[:, dim].contiguous()


def _loss_and_slopes(weight_CD: Tensor, bias_C: Tensor, block: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The cross-entropy of a block, in float64, and its slopes in weight and bias; all of them sums over its rows."""
    features_RD, targets_R = block
    targets_1R = targets_R.unsqueeze(0)
    log_p_CR = torch.addmm(bias_C.unsqueeze(1), weight_CD, features_RD.T).log_softmax(dim=0)
    loss = -log_p_CR.gather(0, targets_1R).sum(dtype=torch.float64)
    error_CR = log_p_CR.exp_().scatter_add_(0, targets_1R, torch.full((1, len(targets_R)), -1.0))
    return loss, error_CR @ features_RD, error_CR.sum(dim=1)


def fit_in_stages(
    features_ND: Tensor, targets_N: Tensor, classes: int, penalty: float, start: Solution, generator: torch.Generator
) -> Solution:
    """The minimiser over all rows, reached from that over a third of them: most passes are then over the third."""
    if len(targets_N) < STAGE_SHARE * SELECTION_ROWS:
        return fit_logistic(features_ND, targets_N, classes, penalty, start)
    spectrum = covariance_spectrum(features_ND)
    some = torch.randperm(len(targets_N), generator=generator)[: len(targets_N) // STAGE_SHARE]
    start = fit_logistic(features_ND[some], targets_N[some], classes, penalty, start, STAGE_TOLERANCE, spectrum)
    # The Hessian falls with the loss, and with it the gradient that may be left.
    loss = _cross_entropy(start, features_ND[some], targets_N[some])
    tolerance = max(GRADIENT_TOLERANCE, STAGE_TOLERANCE * min(1.0, loss))
    return fit_logistic(features_ND, targets_N, classes, penalty, start, tolerance, spectrum)


def _cross_entropy(solution: Solution, features_ND: Tensor, targets_N: Tensor) -> float:
    logits_NC = torch.addmm(solution[1], features_ND, solution[0].T)
    return float(torch.nn.functional.cross_entropy(logits_NC.double(), targets_N))


def choose_penalty(
    features_ND: Tensor, targets_N: Tensor, classes: int, generator: torch.Generator
) -> tuple[float, Solution]:
    """The penalty with the smallest loss on a tenth of the training rows, fitted on at most 5,000 of the others.

    The penalty is a prior on the weights and does not change with the number of rows. Also returns its solution.
    """
    if len(targets_N) < 2 * HELD_OUT_FOLDS:
        return 1.0, (torch.zeros(classes, features_ND.shape[1]), torch.zeros(classes))
    fold_N = stratified_folds(targets_N, HELD_OUT_FOLDS, generator=generator)
    held_out = (fold_N == 0).nonzero().squeeze(1)
    others = (fold_N != 0).nonzero().squeeze(1)
    fitted = others[torch.randperm(len(others), generator=generator)[:SELECTION_ROWS]]
    features_FD, targets_F = features_ND[fitted], targets_N[fitted]
    best: tuple[float, float, Solution] | None = None
    solution, spectrum = None, covariance_spectrum(features_FD)
    for penalty in PENALTIES:  # from strong to weak, each starting from the one before
        solution = fit_logistic(features_FD, targets_F, classes, penalty, solution, SELECTION_TOLERANCE, spectrum)
        loss = _cross_entropy(solution, features_ND[held_out], targets_N[held_out])
        if best is None or loss < best[0]:
            best = (loss, penalty, solution)
        else:
            break  # the loss along the path has one minimum
    assert best is not None
    return best[1], best[2]


def covariance_spectrum(features_ND: Tensor) -> Spectrum:
    """Eigenvalues and eigenvectors of the covariance: the costly part, cubic in D, and the same for every penalty."""
    covariance_DD = features_ND.T @ features_ND / len(features_ND)
    values, vectors = torch.linalg.eigh(covariance_DD.double())
    return values, vectors


def _preconditioner(spectrum: Spectrum, classes: int, decay: float) -> tuple[Tensor, Tensor]:
    """(covariance / C + decay)^(-1/2) and its inverse."""
    values, vectors = spectrum
    # Rounding may leave an eigenvalue below zero, and a tiny one would make steps that float32 cannot follow.
    roots = (values.clamp(min=float(values[-1]) * 1e-6) / classes + decay).sqrt()
    return ((vectors / roots) @ vectors.T).float(), ((vectors * roots) @ vectors.T).float()
