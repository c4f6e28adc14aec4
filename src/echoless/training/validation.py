"""How accurate is a classifier during training? It is tested on held-out images after every epoch."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from echoless.config import RunConfig
from echoless.config.metrics import Metric
from echoless.data import Images, evaluation_batches
from echoless.data.overlap import overlap_warning, taught_warning
from echoless.data.provenance import describe_labels, describe_sets
from echoless.data.reading import align_classes
from echoless.data.resizing import BY_SIZE, LARGE
from echoless.errors import DataError
from echoless.measures import accuracy_interval
from echoless.measures.outcomes import kept
from echoless.randomness import generator_for
from echoless.runs.taught import Taught
from echoless.runtime import Team


class Judge:
    """Called with the model by the training loop; keeps the last predictions."""

    def __init__(self, images: Images, config: RunConfig, team: Team, sets: dict[str, Any] | None = None) -> None:
        """`sets` says on which images it judges: `data.provenance.describe_sets`."""
        self.images, self.config, self.team, self.sets = images, config, team, sets or {}
        self.right: Tensor | None = None
        self.groups_N: Tensor | None = None

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Without augmentation."""
        model.eval()
        data, verdicts, ids = self.config.data, [], []
        batches = evaluation_batches(
            self.images, size=self.config.model.image_size, batch_size=64, mean=data.mean, std=data.std
        )
        for batch in batches:
            assert batch.labels_B is not None
            ids.append(batch.ids_B)
            verdicts.append(model(batch.images_BCHW.to(self.team.device)).argmax(dim=1).cpu() == batch.labels_B)
        model.train()
        self.right, self.groups_N = torch.cat(verdicts), self.images.groups_of(torch.cat(ids))
        return {"test_accuracy": float(self.right.double().mean())}

    def metric(self, name: str, **protocol: Any) -> Metric | None:
        """The last accuracy with its interval; None where nothing was judged."""
        if self.right is None:
            return None
        config = self.config
        drawn = generator_for(config.seed, "probe", 1_000_000)
        value, low, high = accuracy_interval(self.right, generator=drawn, groups_N=self.groups_N)
        epochs = round(config.steps * config.batch_size / config.data.count, 2)
        protocol = {"recipe": config.recipe, "epochs": epochs, "train_n": config.data.count, **protocol}
        protocol |= {"seed": config.seed, **self.sets}
        answers = kept(self.right, self.groups_N)
        return Metric(metric=name, value=value, n=len(self.right), interval=(low, high), protocol=protocol, **answers)


def judge_on(
    train: Images,
    test: Images,
    names: tuple[str, str],
    config: RunConfig,
    team: Team,
    taught: Taught,
) -> Judge:
    """A judge whose numbers name their sets; warns where the two overlap, or labels of --test trained the start."""
    for warning in (overlap_warning(train, test), taught_warning(train, test, taught.keys), taught.note):
        if team.leads and warning:
            print(warning, file=sys.stderr, flush=True)
    view = {"view": BY_SIZE.describe(config.model.image_size)} if min(test.typical_size) > LARGE else {}
    sets = describe_sets(train, test, names, taught.keys) | describe_labels(train, test) | view
    return Judge(test, config, team, sets)


def require_labels(train: Images, test: Images | None, names: tuple[str, str] = ("--train", "--test")) -> None:
    """Refuses unlabelled images, and numbers the classes of the test set as in the training set."""
    for name, images, option in zip(names, (train, test), ("--labels", "--test-labels")):
        if images is None:
            continue
        labelled = 0 if images.labels is None else int((images.labels[images.usable_ids()] >= 0).sum())
        if labelled < images.usable:
            found = f"labels for {labelled} of {images.usable} images" if labelled else "no labels"
            raise DataError(f"{name} has {found}; give sub-folders as classes, a labelled set, or {option} FILE.csv")
    if test is not None:
        align_classes(train, test)
