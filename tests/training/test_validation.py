"""Accuracy during training: measured in evaluation mode, after which training goes on in training mode.

Run alone: pytest tests/training/test_validation.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from echoless.config import RunConfig, ViTConfig
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.config.training import DataConfig
from echoless.data import open_images
from echoless.runtime import join_team
from echoless.training.validation import Judge


class Watched(nn.Module):
    """Says class 3 of everything, and remembers the mode it was asked in."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: list[bool] = []

    def forward(self, images_BCHW: Tensor) -> Tensor:
        self.modes.append(self.training)
        return torch.eye(10)[torch.full((len(images_BCHW),), 3)]


def test_it_judges_in_evaluation_mode_and_leaves_the_model_in_training_mode():
    images = open_images("shapes:100@test")
    encoder = ViTConfig(image_size=(32, 32), patch_size=8, width=32, depth=1, heads=1)
    data = DataConfig(mean=(0.5,) * 3, std=(0.5,) * 3, count=100)
    config = RunConfig(model=ClassifierConfig(encoder=encoder), objective=SupervisedConfig(), data=data)
    judge, model = Judge(images, config, join_team("cpu")), Watched().train()
    found = judge(model)
    assert model.modes and not any(model.modes) and model.training
    assert found == {"test_accuracy": float((images.labels == 3).double().mean())}
    assert judge.metric("accuracy").n == 100
