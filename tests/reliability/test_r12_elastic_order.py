"""R12: the ordered global samples of every step, their crops and their masks are the same for any number of processes
and workers, and from any step on.

    pytest tests/reliability/test_r12_elastic_order.py -s
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny import tiny_config, tiny_images

from echoless.config import RuntimeConfig
from echoless.data import BadSample, Images
from echoless.objectives import MaskedObjective, take
from echoless.runtime import Team
from echoless.training.batches import make_loader

STEPS, BATCH, COUNT = 10, 7, 24  # an odd batch, so that two processes get unequal parts; almost three epochs
Seen = tuple[int, int, int, str, str]  # step, place in the batch, sample, hash of its pixels, hash of its mask


@pytest.fixture(scope="module")
def images() -> Images:
    """With two files that cannot be used."""
    whole = tiny_images(COUNT)
    bad = [BadSample(index, whole.paths[index], "torn") for index in (3, 11)]
    return replace(whole, bad=bad, max_bad_fraction=0.5)


def seen_by(images: Images, rank: int, world: int, workers: int, first: int) -> list[Seen]:
    """What one process of a run trains on, through the loop's own loader and the objective's own draws."""
    config = replace(tiny_config(images, steps=STEPS), batch_size=BATCH)
    rows, columns = config.model.encoder.grid
    objective = MaskedObjective(config.objective, rows * columns)
    session = SimpleNamespace(
        config=config,
        images=images,
        latents=None,
        runtime=RuntimeConfig(workers=workers),
        trainee=SimpleNamespace(team=Team(rank, world, torch.device("cpu"))),
    )
    seen = []
    loader = make_loader(session.config, session.images, session.trainee.team, session.runtime.workers)
    for batch in loader.batches(first, STEPS):
        draws = take(objective.draw(BATCH, config.seed, batch.step), batch.places_B, torch.device("cpu"))
        for i, (place, sample) in enumerate(zip(batch.places_B.tolist(), batch.ids_B.tolist())):
            mask = b"".join(draws[name][i].numpy().tobytes() for name in sorted(draws))
            pixels = batch.images_BCHW[i].numpy().tobytes()
            seen.append((batch.step, place, sample, _hash(pixels), _hash(mask)))
    return seen


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def test_order_crops_and_masks_are_those_of_one_process_from_any_step_on(images):
    whole = seen_by(images, 0, 1, 0, 0)
    runs = mismatches = 0
    for world in (1, 2):
        for workers in (0, 1, 2):
            for first in range(STEPS):
                parts = [seen_by(images, rank, world, workers, first) for rank in range(world)]
                # Ranks in order are the batch: no sorting by place.
                together = [entry for step in range(STEPS) for part in parts for entry in part if entry[0] == step]
                runs, mismatches = runs + 1, mismatches + (together != [e for e in whole if e[0] >= first])
    print(f"R12 worlds=2 workers=3 resumes={STEPS} runs={runs} samples={len(whole)} mismatches={mismatches}")
    assert mismatches == 0 and len(whole) == STEPS * BATCH


def test_every_epoch_sees_every_usable_sample_once_and_every_crop_differs(images):
    whole = seen_by(images, 0, 1, 2, 0)
    usable = set(range(COUNT)) - {3, 11}
    samples = [sample for _, _, sample, _, _ in whole]
    epochs = [samples[start : start + len(usable)] for start in range(0, len(samples), len(usable))]
    assert all(set(epoch) == usable for epoch in epochs[:-1]) and len({tuple(epoch) for epoch in epochs}) == len(epochs)
    assert [(step, place) for step, place, *_ in whole] == [(s, p) for s in range(STEPS) for p in range(BATCH)]
    assert len({crop for *_, crop, _ in whole}) == len({mask for *_, mask in whole}) == len(whole)
