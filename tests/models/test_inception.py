"""The shape of Inception v3, without its weights; tests/tv compares its numbers with torchvision's."""

from __future__ import annotations

import torch

from echoless.models.inception import CLASSES, FEATURES, SIDE, Inception

CONVOLUTIONS = 21_785_568  # torchvision's 23,834,568 parameters without the auxiliary head, less those of 1,000 classes


def test_it_has_as_many_weights_as_published_and_gives_2048_features():
    with torch.device("meta"):
        network = Inception()
        features_BD = network(torch.empty(2, 3, SIDE, SIDE))
    assert sum(each.numel() for each in network.parameters()) == CONVOLUTIONS + (FEATURES + 1) * CLASSES
    assert features_BD.shape == (2, FEATURES) == (2, 2048)
