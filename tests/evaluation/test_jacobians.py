"""The measures of conditioning agree with numpy and with each other, and tell the three starts of a ViT apart."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from echoless.config.options import ConditioningOptions
from echoless.evaluation.jacobians import attention_diagonality, jacobian_condition
from echoless.measures import diagonal_attention, extreme_singular_values, lanczos_singular_values
from echoless.reports.curves import Panel, draw_panels
from echoless.shortcuts import fade
from echoless.verbs.conditioning import conditioning
from echoless.verbs.jacobians import MODELS, build


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_diagonal_of_attention_is_that_of_torchs_softmax():
    query, key = (torch.randn(2, 3, 7, 5, dtype=torch.float64, generator=seeded(i)) for i in range(2))
    expected = (query @ key.transpose(-1, -2) / math.sqrt(5)).softmax(dim=-1).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal_attention(query, key), expected)


def test_extremes_agree_with_numpy_and_lanczos_comes_from_inside():
    matrix = torch.randn(60, 60, dtype=torch.float64, generator=seeded())
    values = np.linalg.svd(matrix.numpy(), compute_uv=False)
    exact = extreme_singular_values(matrix, 60)
    assert exact.condition == pytest.approx(np.linalg.cond(matrix.numpy()), rel=1e-9)
    start = torch.randn(60, dtype=torch.float64, generator=seeded(1))
    some = lanczos_singular_values(matrix.mv, matrix.T.mv, start, 20)
    assert values[-1] <= some.smallest and some.largest <= values[0] * (1 + 1e-12)
    assert some.largest == pytest.approx(values[0], rel=1e-3) and not some.exact
    all_of_them = lanczos_singular_values(matrix.mv, matrix.T.mv, start, 60)
    assert all_of_them.condition == pytest.approx(exact.condition, rel=1e-6)


def test_lanczos_stops_where_its_space_is_complete():
    """Two distinct values: after two steps everything that could follow is rounding."""
    matrix = torch.diag(torch.tensor([3.0] * 20 + [1.0] * 20, dtype=torch.float64))
    start = torch.randn(40, dtype=torch.float64, generator=seeded())
    assert lanczos_singular_values(matrix.mv, matrix.mv, start, 30).condition == pytest.approx(3.0)


def small(name: str, **changes: object) -> torch.nn.Module:
    options = {"width": 32, "depth": 2, "heads": 2, "alpha": 0.7, "beta": 4.0, **changes}
    return build(name, ConditioningOptions(out="out", **options), channels=3)


def test_the_jacobian_is_torchs_own_on_the_directions_that_the_norm_passes():
    model = small("residual").double().eval()
    image = torch.randn(1, 3, 16, 16, dtype=torch.float64, generator=seeded(2))
    tokens, block = model.embed(image), model.blocks[0]
    jacobian = torch.autograd.functional.jacobian(lambda x: x + block.attn(block.norm1(x)), tokens)
    jacobian = jacobian.reshape(tokens.numel(), tokens.numel()).detach().numpy()
    dropped = []
    for index, token in enumerate(tokens[0].detach().numpy()):
        for direction in (np.ones(32), token):
            vector = np.zeros((tokens.shape[1], 32))
            vector[index] = direction
            dropped.append(vector.ravel())
    basis = np.linalg.svd(np.array(dropped))[2][len(dropped) :]  # what is orthogonal to all of them
    values = np.linalg.svd(jacobian @ basis.T, compute_uv=False)
    measured = jacobian_condition(model.float(), image.float())["blocks.0"]
    assert measured.largest == pytest.approx(values[0], rel=1e-5)
    assert measured.smallest == pytest.approx(values[-1], rel=1e-5)


def test_a_foreign_model_without_its_shortcuts_is_measured_too():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=16, patch_size=8
    )
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    images = torch.randn(1, 3, 16, 16, generator=seeded())
    with_shortcuts = jacobian_condition(model, images)["layers.0"].condition
    fade(model, 0.0, schedule="constant", example=images)
    without = jacobian_condition(model, images)["layers.0"].condition
    assert without > 100 * with_shortcuts


def median_condition(name: str, width: int, heads: int, alpha: float = 0.0, beta: float = 0.0) -> float:
    """Of twelve blocks at their start, exact, as a power of ten; printed with its worst and the attention."""
    images = torch.randn(1, 3, 16, 16, generator=seeded(3))
    model = small(name, width=width, depth=12, heads=heads, alpha=alpha, beta=beta)
    conditions = [extremes.condition for extremes in jacobian_condition(model, images).values()]
    diagonal = list(attention_diagonality(model, images).values())
    median = float(np.median(np.log10(conditions)))
    print(f"{width} x 12, {heads} heads, {name}, alpha {alpha}, beta {beta}: condition number 1e{median:.1f}, ", end="")
    print(f"worst {max(conditions):.0e}; diagonal attention from {diagonal[0]:.2f} to {diagonal[-1]:.2f}")
    return median


@pytest.mark.slow
def test_twelve_blocks_without_shortcuts_are_ill_conditioned_unless_initialised_for_it():
    """The constants are chosen for this width; those published for a ViT-B are printed beside."""
    residual, skipless = median_condition(MODELS[0], 96, 1), median_condition(MODELS[1], 96, 1)
    initialised = median_condition(MODELS[2], 96, 1, 0.7, 4.0)
    median_condition(MODELS[2], 96, 1, 2.0, 0.6)
    assert skipless > residual + 3 and skipless > initialised + 3
    assert initialised < residual + 1


@pytest.mark.slow
def test_the_published_constants_do_the_same_for_a_vit_s():
    """Not quite as well as shortcuts, and fifteen orders of magnitude better than nothing."""
    residual, skipless = median_condition(MODELS[0], 384, 6), median_condition(MODELS[1], 384, 6)
    initialised = median_condition(MODELS[2], 384, 6, 1.8, 1.0)
    assert skipless > residual + 3 and skipless > initialised + 3
    assert initialised < residual + 3


def test_the_command_writes_the_table_and_the_figure(tmp_path, capsys):
    said: list[str] = []
    options = {"width": 16, "depth": 2, "heads": 1, "images": 1}
    records = conditioning.run(ConditioningOptions("shapes:4", out=tmp_path / "out", **options), said.append)
    assert json.loads((tmp_path / "out" / "conditioning.json").read_text()) == records
    assert len(records) == 6 and (tmp_path / "out" / "conditioning.png").read_bytes().startswith(b"\x89PNG")
    assert any("blocks.1" in line for line in said)
    assert "labels" not in capsys.readouterr().err, "it uses none, and has no --labels to switch them off"


def test_measuring_leaves_no_hook_in_the_model():
    """A hook that stays would keep the tokens of every later forward."""
    model, images = small("residual"), torch.randn(1, 3, 16, 16, generator=seeded(3))
    jacobian_condition(model, images)
    attention_diagonality(model, images)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_one_panel_is_a_picture_too(tmp_path):
    with Image.open(draw_panels(tmp_path / "one.png", Panel("title", "layer", {"a": [1.0, 2.0]}))) as picture:
        assert picture.width > picture.height
