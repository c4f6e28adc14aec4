"""Our Inception-v3 is torchvision's with the three changes that the FID weights need, which are made here by hand."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.models.inception import Inception


@pytest.fixture
def reference(monkeypatch):
    from torchvision.models import inception

    model = inception.inception_v3(
        weights=None, num_classes=1008, aux_logits=False, transform_input=False, init_weights=False
    )
    functions = {name: getattr(F, name) for name in ("relu", "max_pool2d", "dropout", "adaptive_avg_pool2d")}
    average = SimpleNamespace(**functions, avg_pool2d=partial(F.avg_pool2d, count_include_pad=False))
    largest = SimpleNamespace(**functions, avg_pool2d=F.max_pool2d)
    monkeypatch.setattr(inception, "F", average)

    def forward_last(x: Tensor) -> list[Tensor]:
        with monkeypatch.context() as patched:
            patched.setattr(inception, "F", largest)
            return type(model.Mixed_7c)._forward(model.Mixed_7c, x)

    monkeypatch.setattr(model.Mixed_7c, "_forward", forward_last)
    return model


@torch.no_grad()
def test_it_is_torchvisions_with_the_pooling_of_2015(reference):
    generator = torch.Generator().manual_seed(0)
    for name, tensor in reference.state_dict().items():
        if tensor.is_floating_point():
            fan = tensor[0].numel() if tensor.ndim > 1 else 1
            drawn = torch.randn(tensor.shape, generator=generator)
            scaled = drawn * (2 / fan) ** 0.5 if tensor.ndim > 1 else 1 + 0.1 * drawn
            tensor.copy_(scaled.abs() if name.endswith("running_var") else scaled)
    ours = Inception().eval()
    ours.load_state_dict(reference.state_dict())
    reference.eval()
    seen: list[Tensor] = []
    reference.avgpool.register_forward_hook(lambda module, inputs, output: seen.append(output.flatten(1)))
    images = torch.rand(2, 3, 299, 299, generator=generator)
    scores = reference(2 * images - 1)
    features = ours(images)
    torch.testing.assert_close(features, seen[0], rtol=1e-4, atol=1e-4 * float(seen[0].abs().max()))
    expected = (scores - reference.fc.bias).softmax(dim=1)
    torch.testing.assert_close(ours.probabilities(features), expected, rtol=1e-3, atol=1e-6)
    assert ours(torch.rand(1, 3, 32, 40, generator=generator)).shape == (1, 2048)
