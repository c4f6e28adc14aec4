"""What does DINO minimise (arXiv:2104.14294)? The student's cross-entropy with the teacher's output on other views.

Centring prevents one prototype from dominating, a low teacher temperature (sharpening) prevents a uniform output;
without either, training collapses.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from echoless.config.selfsupervised import DistillationConfig
from echoless.models.dino import DINO
from echoless.objectives.drop_path import drop_path_factors
from echoless.objectives.infonce import rising_momentum
from echoless.objectives.objective import Draws
from echoless.randomness import generator_for

LARGE_VIEWS = 2  # those that the teacher sees


# Eq. (1) and (4), arXiv:2104.14294.
def teacher_targets(scores_BK: Tensor, centre_K: Tensor, temperature: float | Tensor) -> Tensor:
    """The teacher's output, centred and sharpened."""
    return ((scores_BK.float() - centre_K) / temperature).softmax(dim=-1)


# Eq. (3), arXiv:2104.14294, as a mean over the pairs.
def distillation_loss(targets: list[Tensor], students: list[Tensor], temperature: float) -> Tensor:
    """targets: teacher outputs for the large views; students: scores for all views. No view is compared with itself."""
    said = [(scores.float() / temperature).log_softmax(dim=-1) for scores in students]
    pairs = [
        -(target * log_p).sum(dim=-1).mean()
        for number, target in enumerate(targets)
        for view, log_p in enumerate(said)
        if view != number
    ]
    return torch.stack(pairs).mean()


class DINOObjective:
    """Temperatures, momenta and the freezing of the last layer are functions of the step."""

    def __init__(self, config: DistillationConfig, steps: int, branches: int = 0) -> None:
        """branches: of the encoder, for drop path."""
        self.config, self.steps, self.branches = config, steps, branches

    def draw(self, batch_size: int, seed: int, step: int) -> Draws:
        draws = {"teacher_temperature": torch.full((batch_size, 1), self.teacher_temperature(step))}
        if self.config.drop_path > 0:
            generator, views = generator_for(seed, "dropout", step), LARGE_VIEWS + self.config.local_views
            draws["keep"] = torch.rand(batch_size, views, self.branches, generator=generator)
        return draws

    def loss(self, model: nn.Module, images_BCHW: Tensor, labels_B: Tensor | None, draws: Draws) -> Tensor:
        assert isinstance(model, DINO)
        views = [images_BCHW, *(draws[name] for name in sorted(draws) if name.startswith("view"))]
        with torch.no_grad():
            scores = model.teacher(views[:LARGE_VIEWS])
            targets = [teacher_targets(each, model.centre, draws["teacher_temperature"]) for each in scores]
        model.notice(scores)
        students = model.student(views, self._drop_path(draws))
        return distillation_loss(targets, students, self.config.student_temperature)

    def _drop_path(self, draws: Draws) -> list[Tensor] | None:
        """The factors (B, S) of every view."""
        if "keep" not in draws:
            return None
        factors = [drop_path_factors(uniform_BS, self.config.drop_path) for uniform_BS in draws["keep"].unbind(dim=1)]
        return [factor for factor in factors if factor is not None]

    def before_update(self, model: nn.Module, step: int) -> None:
        """Freezes the last layer during the first steps, as in DINO, to stabilise training."""
        assert isinstance(model, DINO)
        if step < self.config.freeze_prototypes * self.steps:
            model.student.head.prototypes.grad = None

    def after_update(self, model: nn.Module, step: int) -> None:
        assert isinstance(model, DINO)
        model.move_centre(self.config.centre_momentum)
        model.follow(rising_momentum(self.config.momentum, step / self.steps))

    def teacher_temperature(self, step: int) -> float:
        first, last = self.config.teacher_temperature
        warmup = self.config.temperature_warmup * self.steps
        return last if step >= warmup else first + (last - first) * step / warmup
