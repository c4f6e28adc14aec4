"""How is multinomial logistic regression fitted? By L-BFGS (measures/lbfgs.py) on

    sum over rows of -log softmax(x W^T + b)[target]  +  penalty / 2 * |W|^2,        divided by the number of rows N

the objective of scikit-learn's LogisticRegression with C = 1 / penalty (the bias is not penalised). A few thousand rows
are fitted first. From zero, the metric is the inverse of covariance / C + penalty / N, the Hessian there: a few
iterations then do what takes hundreds on correlated features. From their solution, each class has a metric of its own,
the inverse of its block of the Hessian, and few passes over all rows are left to do. Gradients are written out and
summed over blocks of rows, each read once for loss and gradient while it is in the cache.

Shapes: N rows, S of a sample, R of a block, D dimensions, E = D + 1 with the bias, C classes.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from echoless.measures.lbfgs import minimise
from echoless.measures.splits import stratified_folds
from echoless.measures.threads import one_thread_each

PENALTIES = (1e4, 1e3, 1e2, 1e1, 1e0, 1e-1, 1e-2)
SELECTION_ROWS = 5000
HELD_OUT_FOLDS = 10
FEW_ROWS = 2000  # or groups of rows: of fewer, a tenth says too little
FEW_TO_BE_SURE = 500  # of fewer, the loss says less than right answers
GRADIENT_TOLERANCE = 1e-4  # largest entry, where the Hessian is about 1: a mean loss less than 1e-4 above the minimum
SELECTION_TOLERANCE = 2e-3
REFINED_TOLERANCE = 5e-4  # times the loss, with which the Hessian falls, where that is below 1
REFINED_SIZES = 2  # of a selection; with fewer rows there is little to gain
ROWS_PER_DIMENSION = 50  # from which on a metric for each class repays its cost
LARGEST_METRIC = 2**25  # numbers
SHARED = 0.1  # of the metric of a class is that of all rows alike: in a sample, few rows speak for a rare class
MOST_ITERATIONS = 300
BLOCK_ROWS = 2048

Solution = tuple[Tensor, Tensor]  # weight_CD, bias_C


def fit_logistic(
    features_ND: Tensor,
    targets_N: Tensor,
    classes: int,
    penalty: float,
    start: Solution | None = None,
    tolerance: float = GRADIENT_TOLERANCE,
    root: Tensor | None = None,
) -> Solution:
    """The minimiser, reached from `start` or from zero. The features should have unit variance.

    root: of the metric of `minimise`, if it is known; default: that of the Hessian at zero.
    """
    n, dim = features_ND.shape
    start = start or (torch.zeros(classes, dim), torch.zeros(classes))
    if root is None:
        root = root_at_zero(covariance_spectrum(features_ND), classes, penalty / n)
    rows = math.ceil(n / math.ceil(n / BLOCK_ROWS))  # equal blocks, so that no thread waits for a larger one
    blocks = list(zip(features_ND.split(rows), targets_N.split(rows)))

    def objective(solution_CE: Tensor) -> tuple[float, Tensor]:
        weight_CD, bias_C = solution_CE[:, :dim].contiguous(), solution_CE[:, dim]
        loss, slope_CE = 0.0, torch.zeros(classes, dim + 1)
        slope_CE[:, :dim] = penalty * weight_CD
        for part, slope_CD, slope_C in pool.map(partial(_loss_and_slopes, weight_CD, bias_C), blocks):
            loss += part  # in order: so are the sums
            slope_CE[:, :dim] += slope_CD
            slope_CE[:, dim] += slope_C
        return (loss + penalty / 2 * float(weight_CD.square().sum())) / n, slope_CE / n

    start_CE = torch.cat([start[0], start[1].unsqueeze(1)], dim=1)
    with one_thread_each() as pool:
        solution_CE = minimise(objective, start_CE, root, tolerance=tolerance, most=MOST_ITERATIONS)
    return solution_CE[:, :dim].contiguous(), solution_CE[:, dim].contiguous()


def _loss_and_slopes(weight_CD: Tensor, bias_C: Tensor, block: tuple[Tensor, Tensor]) -> tuple[float, Tensor, Tensor]:
    """The cross-entropy of a block, in float64, and its slopes in weight and bias; all of them sums over its rows."""
    features_RD, targets_R = block
    targets_1R = targets_R.unsqueeze(0)
    log_p_CR = torch.addmm(bias_C.unsqueeze(1), weight_CD, features_RD.T).log_softmax(dim=0)
    loss = -log_p_CR.gather(0, targets_1R).sum(dtype=torch.float64)
    error_CR = log_p_CR.exp_().scatter_add_(0, targets_1R, torch.full((1, len(targets_R)), -1.0))
    return float(loss), error_CR @ features_RD, error_CR.sum(dim=1)


def refine(
    features_ND: Tensor, targets_N: Tensor, penalty: float, start: Solution, generator: torch.Generator
) -> Solution:
    """The minimiser over all rows, reached from that over a few of them."""
    (classes, dim), n = start[0].shape, len(targets_N)
    if n < REFINED_SIZES * SELECTION_ROWS:
        return fit_logistic(features_ND, targets_N, classes, penalty, start)
    some = torch.randperm(n, generator=generator)[:SELECTION_ROWS]
    loss = _cross_entropy(start, features_ND[some], targets_N[some])
    tolerance = max(GRADIENT_TOLERANCE, REFINED_TOLERANCE * min(1.0, loss))
    repaid = n >= ROWS_PER_DIMENSION * dim and classes * (dim + 1) ** 2 <= LARGEST_METRIC
    root_CEE = _roots_by_class(features_ND[some], start, penalty / n) if repaid else None
    return fit_logistic(features_ND, targets_N, classes, penalty, start, tolerance, root_CEE)


def _cross_entropy(solution: Solution, features_ND: Tensor, targets_N: Tensor) -> float:
    logits_NC = torch.addmm(solution[1], features_ND, solution[0].T)
    return float(torch.nn.functional.cross_entropy(logits_NC.double(), targets_N))


def choose_penalty(
    features_ND: Tensor,
    targets_N: Tensor,
    classes: int,
    generator: torch.Generator,
    groups_N: Tensor | None = None,
) -> tuple[float, Solution]:
    """The penalty that suits held-out training rows best, fitted on at most 5,000 of the others; and a solution of it.

    A tenth of the rows is held out; of few rows every tenth in turn, because a few rows decide nothing. The smallest
    loss counts; of very few, most right answers, and of equals the smaller loss: weights that so few rows decide are
    right more often than they are sure, so that the loss would ask for none at all. groups_N: rows of one group are
    held out together, and count as one. The penalty is a prior on the weights and does not change with the number of
    rows.
    """
    groups = len(targets_N) if groups_N is None else len(groups_N.unique())
    if groups < 2 * HELD_OUT_FOLDS:
        return 1.0, (torch.zeros(classes, features_ND.shape[1]), torch.zeros(classes))
    fold_N = stratified_folds(targets_N, HELD_OUT_FOLDS, generator=generator, groups_N=groups_N)
    few = groups < FEW_ROWS
    most = FEW_ROWS if few else SELECTION_ROWS
    parts = [
        _Part(features_ND, targets_N, classes, fold_N == fold, most, generator)
        for fold in range(HELD_OUT_FOLDS if few else 1)
    ]
    # One metric serves all parts: it decides how soon they are fitted, and not to what.
    spectrum = covariance_spectrum(features_ND[_some(fold_N >= 0, most, generator)] if few else parts[0].features_FD)
    best: tuple[tuple[int, float], float, Solution] | None = None
    for penalty in PENALTIES:  # from strong to weak, each starting from the one before
        root_EE = root_at_zero(spectrum, classes, penalty / len(parts[0].targets_F))
        judged = [part.fit(penalty, root_EE) for part in parts]
        score = (-sum(right for right, _ in judged) if groups < FEW_TO_BE_SURE else 0, sum(loss for _, loss in judged))
        if best is None or score < best[0]:
            best = (score, penalty, parts[0].solution)
        elif not few:
            break  # the loss along the path has one minimum
    assert best is not None
    return best[1], best[2]


class _Part:
    """Rows that are fitted and rows that are held out, with the newest solution."""

    def __init__(
        self,
        features_ND: Tensor,
        targets_N: Tensor,
        classes: int,
        held_out_N: Tensor,
        most: int,
        generator: torch.Generator,
    ) -> None:
        fitted = _some(~held_out_N, most, generator)
        self.features_FD, self.targets_F = features_ND[fitted], targets_N[fitted]
        self.features_HD, self.targets_H = features_ND[held_out_N], targets_N[held_out_N]
        self.solution = (torch.zeros(classes, features_ND.shape[1]), torch.zeros(classes))

    def fit(self, penalty: float, root_EE: Tensor) -> tuple[int, float]:
        """Right answers and mean loss on the rows that are held out."""
        classes, tolerance = len(self.solution[1]), SELECTION_TOLERANCE
        self.solution = fit_logistic(
            self.features_FD, self.targets_F, classes, penalty, self.solution, tolerance, root_EE
        )
        logits_HC = torch.addmm(self.solution[1], self.features_HD, self.solution[0].T)
        loss = float(torch.nn.functional.cross_entropy(logits_HC.double(), self.targets_H))
        return int((logits_HC.argmax(dim=1) == self.targets_H).sum()), loss


def _some(allowed_N: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """At most so many of these rows, drawn."""
    rows = allowed_N.nonzero().squeeze(1)
    return rows[torch.randperm(len(rows), generator=generator)[:most]]


def covariance_spectrum(features_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of the covariance: the costly part, cubic in D, and the same for every penalty."""
    covariance_DD = features_ND.T @ features_ND / len(features_ND)
    values, vectors = torch.linalg.eigh(covariance_DD.double())
    return values, vectors


def root_at_zero(spectrum: tuple[Tensor, Tensor], classes: int, decay: float) -> Tensor:
    """(E, E): (covariance / C + decay)^(-1/2) for the weights, 1 for the bias."""
    values, vectors = spectrum
    # Rounding may leave an eigenvalue below zero, and a tiny one would make steps that float32 cannot follow.
    roots = (values.clamp(min=float(values[-1]) * 1e-6) / classes + decay).sqrt()
    return torch.block_diag(((vectors / roots) @ vectors.T).float(), torch.ones(1, 1))


def _roots_by_class(features_SD: Tensor, solution: Solution, decay: float) -> Tensor:
    """(C, E, E): for each class, a root of the inverse of its block of the Hessian, the mean of p (1 - p) x x^T."""
    p_SC = torch.addmm(solution[1], features_SD, solution[0].T).softmax(dim=1)
    weights_SC = p_SC * (1 - p_SC)
    weights_SC = (1 - SHARED) * weights_SC + SHARED * weights_SC.mean(dim=0)
    features_SE = torch.nn.functional.pad(features_SD, (0, 1), value=1.0)
    decay_E = torch.full(features_SE.shape[1:], decay)
    decay_E[-1] = 0.0
    roots = []
    for weight_S in weights_SC.T:
        block_EE = (features_SE * weight_S.unsqueeze(1)).T @ features_SE / len(features_SE)
        # As in `root_at_zero`; and where a class is beyond doubt in every row, its block is zero.
        least = 1e-6 * float(torch.linalg.matrix_norm(block_EE)) + 1e-12
        lower_EE = torch.linalg.cholesky((block_EE + (decay_E + least).diag()).double())
        identity_EE = torch.eye(len(lower_EE), dtype=torch.float64)
        roots.append(torch.linalg.solve_triangular(lower_EE, identity_EE, upper=False).T.float())
    return torch.stack(roots)
