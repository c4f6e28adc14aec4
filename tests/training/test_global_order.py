"""Which sample stands at which place of the global batch never depends on the number of processes, on accumulation, on
samples that are dropped, or on where a run was resumed; and every sample weighs one part of the batch.

Run alone: pytest tests/training/test_global_order.py
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.data import BadSample, Images, Loader, batch_indices
from echoless.data.augment import AugmentConfig
from echoless.data.images import Shape
from echoless.objectives import take
from echoless.runtime import Team
from echoless.training.step import _backward

CPU = torch.device("cpu")


class Numbered:
    """Image i is i grey levels bright; some can no longer be read, which shows only when they are asked for."""

    def __init__(self, torn: frozenset[int]) -> None:
        self.torn = torn

    def fetch(self, ids):
        return [
            BadSample(i, str(i), "torn") if i in self.torn else np.full((1, 4, 4), i, np.uint8) for i in ids.tolist()
        ]


def numbered_images(count: int, excluded: frozenset[int], torn: frozenset[int]) -> Images:
    bad = [BadSample(i, str(i), "unreadable") for i in sorted(excluded)]
    paths = [str(i) for i in range(count)]
    shape = Shape(1, 4, 4)
    return Images(
        pixels=Numbered(torn), paths=paths, shape=shape, bits=8, fingerprint="", bad=bad, max_bad_fraction=1.0
    )


class Witness:
    """A runner whose loss is the mean number of its images; notes which sample came with which draw."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.one = torch.ones((), requires_grad=True)

    def __call__(self, images_BCHW, labels_B, draws):
        numbers_B = (images_BCHW.mean(dim=(1, 2, 3)) * 255).round()
        self.seen += zip(draws["place"].tolist(), numbers_B.long().tolist())
        return numbers_B.mean() * self.one


def seen_in(images: Images, step: int, *, seed: int, batch_size: int, world: int, accumulate: int):
    """The (place, sample) pairs of all processes in order, and the loss that they report together."""
    seen, loss = [], 0.0
    for rank in range(world):
        loader = Loader(
            images, size=(4, 4), batch_size=batch_size, seed=seed, mean=(0.0,), std=(1.0,), augment=AugmentConfig(),
            workers=0, rank=rank, world=world,
        )  # fmt: skip
        batch = next(iter(loader.batches(step, step + 1)))  # as a run does that is resumed before this step
        witness = Witness()
        trainee = SimpleNamespace(
            config=SimpleNamespace(accumulate=accumulate, batch_size=batch_size, precision="fp32"),
            team=Team(rank, world, CPU),
            runner=witness,
            sharded=False,
        )
        if len(batch.ids_B):
            draws = take({"place": torch.arange(batch_size)}, batch.places_B, CPU)
            loss += float(_backward(trainee, batch, draws)) / world
        seen += witness.seen
    return seen, loss


@settings(max_examples=40)
@given(data=st.data(), seed=st.integers(0, 2**40), count=st.integers(1, 40), step=st.integers(0, 500))
def test_any_world_accumulation_loss_of_samples_and_resume_show_nowhere(data, seed, count, step):
    """Against the definition: the ids of `batch_indices` in order, without those that cannot be read."""
    ids = st.integers(0, count - 1)
    excluded = data.draw(st.frozensets(ids, max_size=count - 1), "excluded")
    torn = data.draw(st.frozensets(ids, max_size=4), "torn while training")
    batch_size = data.draw(st.integers(1, 12), "batch size")
    world, accumulate = data.draw(st.integers(1, batch_size), "world"), data.draw(st.integers(1, 5), "accumulate")
    images = numbered_images(count, excluded, torn)
    wanted = batch_indices(seed, step, batch_size, count, excluded).tolist()
    expected = [(place, sample) for place, sample in enumerate(wanted) if sample not in torn]
    seen, loss = seen_in(images, step, seed=seed, batch_size=batch_size, world=world, accumulate=accumulate)
    assert seen == expected
    assert abs(loss - sum(sample for _, sample in expected) / batch_size) < 1e-3
