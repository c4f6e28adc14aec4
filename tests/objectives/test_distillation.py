"""Proves DINO's loss against the published formula written out in numpy, its state, and that it does not collapse.

Run alone: pytest tests/objectives/test_dino.py -s.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from echoless.config import DINOConfig, DistillationConfig, ShortcutConfig, ViTConfig
from echoless.models import DINO
from echoless.objectives import DINOObjective, distillation_loss, teacher_targets
from echoless.objectives.drop_path import drop_path_factors


def small(variant: str = "faded", prototypes: int = 12, patch: int = 2) -> DINO:
    encoder = ViTConfig(
        image_size=(8, 8),
        patch_size=patch,
        width=16,
        depth=2,
        heads=2,
        zero_init=False,
        final_norm=True,
        shortcuts=ShortcutConfig(variant=variant, alpha_min=0.7),
    )
    config = DINOConfig(encoder=encoder, hidden=32, bottleneck=8, prototypes=prototypes)
    return DINO(config, torch.Generator().manual_seed(0))


def batch(count: int = 4, locals_: int = 2) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    sizes = [8, 8, *[4] * locals_]
    first, *others = (torch.randn(count, 3, size, size, generator=generator) for size in sizes)
    return first, {f"view{number:02d}": view for number, view in enumerate(others, start=1)}


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_the_loss_is_the_published_sum_over_pairs_of_different_views():
    generator = np.random.default_rng(0)
    teacher, student = generator.normal(size=(2, 3, 5)), generator.normal(size=(4, 3, 5))
    centre = generator.normal(size=5)
    expected, pairs = 0.0, 0
    for t in range(2):
        for s in range(4):
            if s == t:
                continue
            pairs += 1
            for image in range(3):
                p = softmax((teacher[t, image] - centre) / 0.04)
                expected -= float(p @ np.log(softmax(student[s, image] / 0.1))) / 3
    targets = [teacher_targets(torch.from_numpy(t), torch.from_numpy(centre), 0.04) for t in teacher]
    ours = distillation_loss(targets, [torch.from_numpy(s) for s in student], 0.1)
    assert float(ours) == pytest.approx(expected / pairs, rel=1e-5)


def test_the_objective_shows_the_teacher_the_large_views_and_the_student_all():
    model, (first, draws) = small(), batch()
    objective = DINOObjective(DistillationConfig(), steps=100)
    draws |= objective.draw(4, 0, 50)
    loss = objective.loss(model, first, None, draws)
    with torch.no_grad():
        large, local = [first, draws["view01"]], [draws["view02"], draws["view03"]]
        targets = [((score - model.centre) / 0.04).softmax(dim=-1) for score in model.teacher(large)]
        scores = [model.student([view])[0] for view in (*large, *local)]
    assert loss.item() == pytest.approx(distillation_loss(targets, scores, 0.1).item(), rel=1e-5)


def test_the_student_alone_drops_paths_each_view_its_own():
    """The loss with drop path is that of the student's scores with the drawn factors; the teacher has none."""
    model, (first, draws) = small(), batch()
    branches = 2 * len(model.student.encoder.blocks)
    objective = DINOObjective(DistillationConfig(drop_path=0.5, local_views=2), steps=100, branches=branches)
    draws |= objective.draw(4, 0, 50)
    assert draws["keep"].shape == (4, 4, branches)
    loss = objective.loss(model, first, None, draws)
    views = [first, *(draws[f"view0{number}"] for number in (1, 2, 3))]
    with torch.no_grad():
        targets = [((score - model.centre) / 0.04).softmax(dim=-1) for score in model.teacher(views[:2])]
        factors = [drop_path_factors(draws["keep"][:, number], 0.5) for number in range(4)]
        scores = [model.student([view], [factor])[0] for view, factor in zip(views, factors)]
    assert loss.item() == pytest.approx(distillation_loss(targets, scores, 0.1).item(), rel=1e-5)
    assert any((factor == 0).any() for factor in factors)


def test_the_centre_is_the_moving_mean_however_the_batch_is_cut():
    first, draws = batch(count=6)
    objective = DINOObjective(DistillationConfig(centre_momentum=0.9), steps=100)
    draws |= objective.draw(6, 0, 0)
    centres = []
    for pieces in ([slice(0, 6)], [slice(0, 2), slice(2, 6)]):
        model = small()
        with torch.no_grad():
            expected = 0.1 * torch.cat(model.teacher([first, draws["view01"]])).mean(dim=0)
        for piece in pieces:
            objective.loss(model, first[piece], None, {name: value[piece] for name, value in draws.items()})
        objective.after_update(model, 0)
        assert torch.allclose(model.centre, expected, atol=1e-6)
        assert float(model.seen.abs().max()) == 0
        centres.append(model.centre)


@pytest.mark.parametrize("variant", ["faded", "identity", "none"])
def test_gradients_reach_the_student_alone_and_the_last_layer_waits(variant):
    model, (first, draws) = small(variant), batch()
    objective = DINOObjective(DistillationConfig(freeze_prototypes=0.1), steps=20)
    objective.loss(model, first, None, draws | objective.draw(4, 0, 0)).backward()
    assert all((p.grad is None) == name.startswith("teacher") for name, p in model.named_parameters())
    for step, waits in ((0, True), (1, True), (2, False)):
        model.student.head.prototypes.grad = torch.ones_like(model.student.head.prototypes)
        objective.before_update(model, step)
        assert (model.student.head.prototypes.grad is None) == waits, step


def test_teacher_and_centre_are_part_of_the_state_and_the_encoder_is_the_teachers():
    state = small().state_dict()
    assert "centre" in state and "seen" not in state
    assert {name.split(".")[0] for name in state} == {"student", "teacher", "centre"}
    model = small()
    assert model.encoder is model.teacher.encoder


def test_temperatures_warm_up_and_then_stay():
    objective = DINOObjective(DistillationConfig(teacher_temperature=(0.04, 0.07), temperature_warmup=0.5), steps=20)
    assert [objective.teacher_temperature(step) for step in (0, 5, 10, 19)] == pytest.approx([0.04, 0.055, 0.07, 0.07])


def answers(centring: bool, steps: int = 60) -> float:
    """The entropy, in bits, of which prototype the teacher prefers over 32 images after some training."""
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(32, 3, 8, 8, generator=generator)
    model = small("identity", prototypes=16, patch=4)
    config = DistillationConfig(momentum=0.9, freeze_prototypes=0.0, centre_momentum=0.9 if centring else 1.0)
    objective = DINOObjective(config, steps=steps)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for step in range(steps):
        noisy = [images + 0.3 * torch.randn(images.shape, generator=generator) for _ in range(2)]
        optimizer.zero_grad()
        objective.loss(model, noisy[0], None, {"view01": noisy[1]} | objective.draw(32, 0, step)).backward()
        optimizer.step()
        objective.after_update(model, step)
    with torch.no_grad():
        mean = teacher_targets(model.teacher([images])[0], model.centre, 0.04).mean(dim=0)
    return float(-(mean * mean.clamp(min=1e-12).log2()).sum())


def test_centring_keeps_it_from_giving_every_image_the_same_answer():
    """A centre that never moves (momentum 1) lets one prototype win; a moving one does not."""
    with_centre, without = answers(True), answers(False)
    print(f"DINO collapse: entropy of the answers {with_centre:.2f} bits with centring, {without:.2f} without, of 4")
    assert with_centre > 2.0 > without
