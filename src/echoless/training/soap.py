"""How does SOAP update a weight? By Adam, in the eigenbases of its gradients' covariances (arXiv:2409.11321).

It computes what pytorch-optimizer's SOAP computes, in less time. Weights of equal shape are stacked and updated
together, because for small matrices calling a product takes longer than computing it; and the mean of the gradients is
kept in the bases instead of being rotated in every step, which saves a quarter of the products. A stack holds the
states of its weights: `state[weight]` are views of it.

Shapes: S weights in a stack, then the sides of the weight. Each side has a covariance and a basis (S, d, d), or None if
the weight is a vector, or the side is larger than `max_precondition_dim` or very long beside the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from echoless.training.uncompiled import Uncompiled

# A side of more than LONG values that is more than SLENDER times as long as the others together gets no basis. Of 3072
# x 64, the patches of 32 of a small encoder, it costs thirty steps, and learns more slowly (docs/performance.md).
LONG, SLENDER = 1024, 16
STACKED_VALUES = 2**24  # a stack's largest tensor: more would take memory and save no time

Sides = Sequence[Tensor | None]


class SOAP(Uncompiled):
    """The first gradient of a weight only initialises its bases; every later one updates it.

    precondition_frequency: bases are renewed in every so many steps.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        weight_decay: float = 0.01,
        eps: float = 1e-8,
        precondition_frequency: int = 10,
        max_precondition_dim: int = 10_000,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "weight_decay": weight_decay,
            "eps": eps,
            "precondition_frequency": precondition_frequency,
            "max_precondition_dim": max_precondition_dim,
            "step": 0,
        }
        super().__init__(params, defaults)
        self._stacks: dict[int, list[Stack]] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Also the end of `load_state_dict`: the stacks are those of another state."""
        super().__setstate__(state)
        self._stacks = {}
        for weight, loaded in self.state.items():
            if "exp_avg" in loaded:
                self.state[weight] = from_pytorch_optimizer(loaded)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for index, group in enumerate(self.param_groups):
            weights = [weight for weight in group["params"] if weight.grad is not None]
            known = [weight for weight in weights if self.state[weight]]
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight] = first_state(weight.grad, group["betas"][1], group["max_precondition_dim"])
            group["step"] += 1
            for stack in self._stacks_of(index, known):
                stack.update(group)
        return loss

    def _stacks_of(self, index: int, weights: list[Tensor]) -> list[Stack]:
        """The stacks of a group, made anew if other weights have a gradient than in the step before."""
        known = self._stacks.get(index, [])
        if {id(weight) for stack in known for weight in stack.weights} != {id(weight) for weight in weights}:
            known = [Stack(some, [self.state[weight] for weight in some]) for some in alike(weights)]
            self._stacks[index] = known
        return known


def alike(weights: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Weights of one shape, type and device, as many as a stack may hold."""
    kinds: dict[object, list[Tensor]] = {}
    for weight in weights:
        kinds.setdefault((weight.shape, weight.dtype, weight.device), []).append(weight)
    for same in kinds.values():
        values = max(same[0].numel(), *(side * side for side in same[0].shape), 1)
        most = max(1, STACKED_VALUES // values)
        yield from (same[start : start + most] for start in range(0, len(same), most))


class Stack:
    """Weights of one shape with their states, one tensor for all."""

    def __init__(self, weights: list[Tensor], states: list[dict[str, Any]]) -> None:
        self.weights = weights
        self.mean = torch.stack([state["mean"] for state in states])
        self.square = torch.stack([state["square"] for state in states])
        self.covariances = _stack_sides([state["covariances"] for state in states])
        self.bases = _stack_sides([state["bases"] for state in states])
        for i, state in enumerate(states):
            state["mean"], state["square"] = self.mean[i], self.square[i]
            state["covariances"] = _take_sides(self.covariances, i)
            state["bases"] = _take_sides(self.bases, i)

    # Algorithm 3, arXiv:2409.11321, with Adam's bias correction and the weight decay of AdamW.
    def update(self, group: dict[str, Any]) -> None:
        """One step of every weight in the stack."""
        (beta1, beta2), done, lr = group["betas"], group["step"] - 1, group["lr"]
        gradient = torch.stack([weight.grad for weight in self.weights])  # type: ignore[misc]
        rotated = rotate(gradient, self.bases)
        self.mean.lerp_(rotated, 1 - beta1)
        self.square.mul_(beta2).addcmul_(rotated, rotated, value=1 - beta2)
        direction = rotate(self.mean / self.square.sqrt().add_(group["eps"]), self.bases, back=True)
        size = lr * math.sqrt(1 - beta2**done) / (1 - beta1**done)
        torch._foreach_add_(self.weights, direction.unbind(), alpha=-size)
        if group["weight_decay"]:
            torch._foreach_mul_(self.weights, 1 - lr * group["weight_decay"])
        update_covariances(self.covariances, gradient, beta2)
        if done % group["precondition_frequency"] == 0:
            self.renew_bases()

    # Algorithm 4, arXiv:2409.11321: one step of the power iteration, then QR.
    def renew_bases(self) -> None:
        """Columns in the order of falling eigenvalues, the second moments in the same order, the mean in new bases."""
        mean = rotate(self.mean, self.bases, back=True)
        for side, (covariance, basis) in enumerate(zip(self.covariances, self.bases), start=1):
            if covariance is None or basis is None:
                continue
            product = covariance @ basis
            order_Sd = (basis * product).sum(dim=1).argsort(dim=1, descending=True)
            along = [-1 if axis == side else 1 for axis in range(1, self.square.ndim)]
            self.square.copy_(self.square.gather(side, order_Sd.view(len(basis), *along).expand_as(self.square)))
            basis.copy_(torch.linalg.qr(product.gather(2, order_Sd[:, None].expand_as(product))).Q)
        self.mean.copy_(rotate(mean, self.bases))


def rotate(x: Tensor, bases: Sides, *, back: bool = False) -> Tensor:
    """Every side of x in its basis, or back from it. Each turn moves the first side to the end: all return in order."""
    for basis in bases:
        S, first, *rest = x.shape
        turned = x.reshape(S, first, -1).mT
        if basis is not None:
            turned = torch.bmm(turned, basis.mT if back else basis)
        x = turned.reshape(S, *rest, first)
    return x


def update_covariances(covariances: Sides, gradient: Tensor, beta: float) -> None:
    """Moving averages of G G^T over every side, in place."""
    for side, covariance in enumerate(covariances, start=1):
        if covariance is not None:
            rows = gradient.movedim(side, 1).flatten(2)
            covariance.baddbmm_(rows, rows.mT, beta=beta, alpha=1 - beta)


def first_state(gradient: Tensor, beta: float, largest: int) -> dict[str, Any]:
    """The state of one weight after its first gradient. `mean` and `square` are moments in the bases."""
    whole = [gradient.ndim > 1 and has_basis(side, gradient.numel() // side, largest) for side in gradient.shape]
    stacked = [gradient.new_zeros(1, d, d) if yes else None for d, yes in zip(gradient.shape, whole)]
    update_covariances(stacked, gradient[None], beta)
    covariances = _take_sides(stacked, 0)
    return {
        "mean": torch.zeros_like(gradient, memory_format=torch.contiguous_format),
        "square": torch.zeros_like(gradient, memory_format=torch.contiguous_format),
        "covariances": covariances,
        "bases": [None if covariance is None else eigenvectors(covariance) for covariance in covariances],
    }


def has_basis(side: int, others: int, largest: int) -> bool:
    """others: the product of the other sides.

    >>> has_basis(3072, 64, 10_000), has_basis(3072, 768, 10_000), has_basis(768, 64, 10_000), has_basis(64, 1, 10_000)
    (False, True, True, True)
    """
    return side <= largest and (side <= LONG or side <= SLENDER * others)


def eigenvectors(covariance_dd: Tensor) -> Tensor:
    """In columns, that of the largest eigenvalue first."""
    nudge = 1e-30 * torch.eye(len(covariance_dd), dtype=covariance_dd.dtype, device=covariance_dd.device)
    try:
        columns = torch.linalg.eigh(covariance_dd + nudge).eigenvectors
    except torch.linalg.LinAlgError:  # no convergence in this precision
        columns = torch.linalg.eigh((covariance_dd + nudge).double()).eigenvectors.to(covariance_dd.dtype)
    return columns.flip(1)


def from_pytorch_optimizer(state: dict[str, Any]) -> dict[str, Any]:
    """The state of a weight in a checkpoint of an earlier version, which trained with pytorch-optimizer's SOAP."""
    covariances, bases = ([side if isinstance(side, Tensor) else None for side in state[name]] for name in ("GG", "Q"))
    mean = rotate(state["exp_avg"][None], [None if basis is None else basis[None] for basis in bases])[0]
    return {"mean": mean, "square": state["exp_avg_sq"], "covariances": covariances, "bases": bases}


def _stack_sides(states: list[list[Tensor | None]]) -> list[Tensor | None]:
    """The sides of S weights."""
    return [None if each[0] is None else torch.stack(each) for each in map(list, zip(*states))]  # type: ignore[arg-type]


def _take_sides(sides: Sides, index: int) -> list[Tensor | None]:
    return [None if side is None else side[index] for side in sides]
