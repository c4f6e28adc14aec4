"""An encoder whose branches are still zero is computed without them, and nobody can tell from its features."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from echoless.config import mae_preset
from echoless.models import ViT, without_silent_branches
from echoless.models.silent import SilentBlock

CONFIG = mae_preset("tiny", image_size=(16, 16), patch_size=4, alpha_min=0.6).encoder
IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def untrained(**changes: object) -> ViT:
    return ViT(replace(CONFIG, **changes), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("variant", ["faded", "identity", "scale_both", "scale_branch", "learnable", "none"])
@pytest.mark.parametrize("options", [{}, {"layer_scale": 0.5}, {"gated_mlp": True, "activation": "silu"}])
def test_every_intermediate_is_the_same_bit_for_bit(variant, options):
    network = untrained(shortcuts=replace(CONFIG.shortcuts, variant=variant), **options)
    for block in network.blocks:  # also where there is no shortcut, whose branches do not start at zero
        torch.nn.init.zeros_(block.attn.proj.weight)
        torch.nn.init.zeros_(block.mlp.fc2.weight)
    lighter = without_silent_branches(network)
    assert all(isinstance(block, SilentBlock) for block in lighter.blocks)
    expected, found = network.features(IMAGES), lighter.features(IMAGES)
    assert list(expected) == list(found)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_the_stream_is_the_embedding_times_the_product_of_the_alphas():
    """The closed form of a network without branches."""
    network = untrained()
    features = without_silent_branches(network).features(IMAGES)
    product = math.prod(float(shortcut.alpha) for shortcut in network.shortcuts)
    torch.testing.assert_close(features[features.last_block], product * features["embed"], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("layer", ["attn.proj.weight", "attn.proj.bias", "mlp.fc2.weight", "mlp.fc2.bias"])
def test_one_weight_that_is_not_zero_makes_a_block_speak(layer):
    network = untrained()
    with torch.no_grad():
        network.get_parameter(f"blocks.1.{layer}").view(-1)[-1] = 1e-3
    lighter = without_silent_branches(network)
    assert [isinstance(block, SilentBlock) for block in lighter.blocks] == [True, False] + [True] * (CONFIG.depth - 2)
    expected, found = network.features(IMAGES), lighter.features(IMAGES)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_network_that_speaks_in_every_block_stays_itself_and_no_network_is_changed():
    speaking = untrained(zero_init=False)
    assert without_silent_branches(speaking) is speaking
    silent = untrained()
    blocks, weights = list(silent.blocks), list(silent.state_dict())
    lighter = without_silent_branches(silent)
    assert list(silent.blocks) == blocks and list(silent.state_dict()) == weights
    assert lighter.patch_embed.weight is silent.patch_embed.weight
