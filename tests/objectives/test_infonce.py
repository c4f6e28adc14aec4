"""Proves InfoNCE against sums written out in numpy and its closed forms, and that the slow encoder is an average.

Run alone: pytest tests/objectives/test_contrastive.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from echoless.config import InfoNCEConfig, MoCoConfig, ShortcutConfig, ViTConfig
from echoless.models import MoCo
from echoless.objectives import InfoNCEObjective, info_nce, rising_momentum


def small(**shortcuts) -> MoCo:
    encoder = ViTConfig(
        image_size=(8, 8),
        patch_size=4,
        width=16,
        depth=2,
        heads=2,
        zero_init=False,
        final_norm=True,
        shortcuts=ShortcutConfig(**{"alpha_min": 0.7} | shortcuts),
    )
    return MoCo(MoCoConfig(encoder=encoder, hidden=32, output=8), torch.Generator().manual_seed(0))


def views(count: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(count, 3, 8, 8, generator=generator) for _ in range(2)]


def test_the_loss_is_the_published_sum():
    generator = np.random.default_rng(0)
    queries, keys, temperature, first = generator.normal(size=(3, 5)), generator.normal(size=(7, 5)), 0.2, 2
    expected = 0.0
    for i, q in enumerate(queries):
        cosines = [float(q @ k) / math.sqrt(float(q @ q) * float(k @ k)) / temperature for k in keys]
        expected -= cosines[first + i] - math.log(sum(math.exp(value) for value in cosines))
    expected *= 2 * temperature / len(queries)
    ours = info_nce(torch.from_numpy(queries), torch.from_numpy(keys), first, temperature)
    assert float(ours) == pytest.approx(expected, rel=1e-5)


def test_closed_forms_equal_keys_cannot_be_told_apart_and_orthogonal_ones_can():
    same = torch.ones(8, 4)
    assert float(info_nce(same, same, 0, 0.5)) == pytest.approx(math.log(8), rel=1e-6)
    apart = torch.eye(8)
    expected = 2 * 0.5 * math.log(1 + 7 * math.exp(-1 / 0.5))
    assert float(info_nce(apart, apart, 0, 0.5)) == pytest.approx(expected, rel=1e-6)


def test_both_views_are_queries_and_keys_in_turn():
    model, (one, two) = small(), views()
    objective = InfoNCEObjective(InfoNCEConfig(temperature=0.2), steps=10)
    loss = objective.loss(model, one, None, {"view01": two})
    pairs = model([one, two])
    expected = info_nce(pairs.queries[0], pairs.keys[1], 0, 0.2) + info_nce(pairs.queries[1], pairs.keys[0], 0, 0.2)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    mirrored = objective.loss(model, two, None, {"view01": one})
    assert mirrored.item() == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("variant", ["faded", "identity", "none"])
def test_gradients_reach_everything_but_the_slow_copy(variant):
    model, (one, two) = small(variant=variant), views()
    InfoNCEObjective(InfoNCEConfig(), steps=10).loss(model, one, None, {"view01": two}).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == name.startswith("slow"), name


def test_the_slow_copy_is_the_moving_average_and_starts_as_the_encoder():
    model = small()
    assert all(a.equal(b) for a, b in zip(model.slow_encoder.parameters(), model.encoder.parameters()))
    before = [p.clone() for p in model.slow_encoder.parameters()]
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.add_(1.0)
    objective = InfoNCEObjective(InfoNCEConfig(momentum=0.9), steps=10)
    objective.after_update(model, 0)
    for old, new, fast in zip(before, model.slow_encoder.parameters(), model.encoder.parameters()):
        assert torch.allclose(new, 0.9 * old + 0.1 * fast, atol=1e-6)


def test_the_momentum_rises_from_its_start_to_one():
    assert [rising_momentum(0.99, progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.99, 0.995, 1.0])
