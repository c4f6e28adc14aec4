"""With alpha 1, the plain decoder and the same weights and mask, the masked autoencoder is transformers' ViTMAE."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import ViTMAEConfig, ViTMAEForPreTraining
from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

from echoless.config import MaskedConfig, mae_preset
from echoless.exchange import load_hf_vitmae
from echoless.models import MAE, sincos_positions
from echoless.objectives import masked_loss, masking_from_noise


@torch.no_grad()
def fill_positions(table, side: int) -> None:
    """A ViTMAE made from a config comes with its tables zeroed; its own function, columns first, is what they hold."""
    rows_first = build_2d_sinusoidal_position_embedding(
        height=side, width=side, embed_dim=table.shape[-1], cls_token=True
    )
    table.copy_(rows_first.roll(table.shape[-1] // 2, dims=-1))


def make_pair(*, image: int, patch: int, channels: int, width: int, depth: int, heads: int, normalize: bool):
    theirs_config = ViTMAEConfig(
        image_size=image,
        patch_size=patch,
        num_channels=channels,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        decoder_hidden_size=64,
        decoder_num_hidden_layers=2,
        decoder_num_attention_heads=4,
        decoder_intermediate_size=256,
        norm_pix_loss=normalize,
        layer_norm_eps=1e-6,
    )
    theirs = ViTMAEForPreTraining(theirs_config).eval()
    fill_positions(theirs.vit.embeddings.position_embeddings, image // patch)
    fill_positions(theirs.decoder.decoder_pos_embed, image // patch)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in theirs.named_parameters():
        if "pos" not in name:  # larger than the default 0.02, so that blocks matter
            torch.nn.init.normal_(parameter, 1.0 if "norm.weight" in name else 0.0, 0.08, generator=generator)
    config = mae_preset(
        "tiny", image_size=(image, image), patch_size=patch, channels=channels, decoder="plain", alpha_min=1.0
    )
    encoder = replace(config.encoder, width=width, depth=depth, heads=heads)
    config = replace(config, encoder=encoder, decoder_width=64, decoder_depth=2, decoder_heads=4)
    ours = MAE(config)
    ours.load_state_dict(load_hf_vitmae(theirs.state_dict()))
    return ours, theirs


CASES = [
    {"image": 32, "patch": 4, "channels": 3, "width": 96, "depth": 6, "heads": 3, "normalize": True},
    {"image": 24, "patch": 8, "channels": 1, "width": 64, "depth": 3, "heads": 4, "normalize": False},
]


@pytest.mark.parametrize("case", CASES, ids=["32px-3channels", "24px-1channel"])
@torch.no_grad()
def test_loss_and_every_encoder_block_equal_transformers(case, generator):
    ours, theirs = make_pair(**case)
    images = torch.randn(5, case["channels"], case["image"], case["image"], generator=generator)
    noise = torch.rand(5, (case["image"] // case["patch"]) ** 2, generator=generator)
    masking = masking_from_noise(noise, 0.75)

    expected = theirs(images, noise=noise, output_hidden_states=True)
    blocks = {}
    ours.encoder(images, masking.keep_BK, note=lambda name, value: blocks.setdefault(name, value))
    loss = masked_loss(ours, images, masking, MaskedConfig(normalize_pixels=case["normalize"]))

    torch.testing.assert_close(loss, expected.loss, rtol=1e-5, atol=0)
    assert len(expected.hidden_states) == case["depth"] + 1
    torch.testing.assert_close(blocks["embed"], expected.hidden_states[0], rtol=1e-5, atol=1e-5)
    for index, hidden in enumerate(expected.hidden_states[1:]):
        block = blocks[f"block{index:02d}/+mlp"]
        if not torch.allclose(block, hidden, rtol=1e-5, atol=1e-5):  # the last one may be recorded after the norm
            assert index == case["depth"] - 1
            torch.testing.assert_close(blocks["norm"], hidden, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_predictions_equal_transformers_patch_by_patch(generator):
    ours, theirs = make_pair(**CASES[0])
    images = torch.randn(3, 3, 32, 32, generator=generator)
    noise = torch.rand(3, 64, generator=generator)
    masking = masking_from_noise(noise, 0.75)
    expected = theirs(images, noise=noise).logits
    expected = expected.gather(1, masking.hidden_BM[..., None].expand(-1, -1, expected.shape[-1]))
    torch.testing.assert_close(ours(images, masking), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_non_square_images_equal_transformers(generator):
    """Its positions interpolate; ours are read at the same grid, given the table that it computed."""
    ours, theirs = make_pair(**CASES[0])
    images = torch.randn(2, 3, 32, 16, generator=generator)
    noise = torch.rand(2, 32, generator=generator)
    expected = theirs.vit(images, noise=noise, interpolate_pos_encoding=True, output_hidden_states=True)

    table = theirs.vit.embeddings.interpolate_pos_encoding(torch.empty(1, 33, 96), 32, 16)
    config = replace(ours.config.encoder, image_size=(32, 16))
    wide = type(ours.encoder)(config)
    wide.load_state_dict(ours.encoder.state_dict() | {"positions": table[0, 1:]})
    tokens = wide(images, masking_from_noise(noise, 0.75).keep_BK)
    torch.testing.assert_close(tokens, expected.last_hidden_state, rtol=1e-5, atol=1e-5)


def test_positions_equal_transformers():
    _, theirs = make_pair(**CASES[0])
    torch.testing.assert_close(
        sincos_positions((8, 8), 96), theirs.vit.embeddings.position_embeddings[0, 1:].detach(), rtol=0, atol=1e-6
    )
    torch.testing.assert_close(
        sincos_positions((8, 8), 64), theirs.decoder.decoder_pos_embed[0, 1:].detach(), rtol=0, atol=1e-6
    )


def test_a_foreign_state_is_refused_by_the_name_that_does_not_fit():
    _, theirs = make_pair(**CASES[1])
    state = dict(theirs.state_dict())
    with pytest.raises(Exception, match=r"an unexpected 'classifier.weight'; they must be the state of a ViTMAE"):
        load_hf_vitmae(state | {"classifier.weight": torch.zeros(1)})
    del state["decoder.mask_token"]
    with pytest.raises(Exception, match=r"the weights lack 'decoder.mask_token'"):
        load_hf_vitmae(state)
