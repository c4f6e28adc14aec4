"""A patched ViTMAE of transformers and our own masked autoencoder, faded alike, train to the same losses."""

from __future__ import annotations

from dataclasses import replace

import torch
from transformers import ViTMAEConfig, ViTMAEForPreTraining

from echoless.config import MaskedConfig, mae_preset
from echoless.exchange import load_hf_vitmae
from echoless.models import MAE
from echoless.objectives import masked_loss, masking_from_noise
from echoless.shortcuts import fade

STEPS = 50
ALPHA_MIN = 0.6


def make_pair() -> tuple[MAE, ViTMAEForPreTraining]:
    theirs_config = ViTMAEConfig(
        image_size=32,
        patch_size=8,
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=192,
        decoder_hidden_size=32,
        decoder_num_hidden_layers=2,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=128,
        norm_pix_loss=True,
        layer_norm_eps=1e-6,
    )
    theirs = ViTMAEForPreTraining(theirs_config)
    config = mae_preset("tiny", image_size=(32, 32), patch_size=8, decoder="plain", alpha_min=ALPHA_MIN)
    encoder = replace(config.encoder, width=48, depth=4, heads=3)
    ours = MAE(replace(config, encoder=encoder, decoder_width=32, decoder_depth=2, decoder_heads=2))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "pos" in name:  # made from a config, its tables are empty: ours, with nothing for the class token
                table = ours.encoder.positions if "decoder" not in name else ours.decoder.positions
                parameter[0].copy_(torch.cat([torch.zeros(1, table.shape[1]), table]))
            else:
                start = 1.0 if "norm" in name and name.endswith("weight") else 0.0
                parameter.copy_(start + 0.05 * torch.randn(parameter.shape, generator=generator))
    ours.load_state_dict(load_hf_vitmae(theirs.state_dict()))
    return ours.train(), theirs.train()


def test_fifty_steps_of_a_patched_vitmae_and_of_our_mae_have_the_same_losses() -> None:
    ours, theirs = make_pair()
    generator = torch.Generator().manual_seed(1)
    first = {
        "pixel_values": torch.randn(2, 3, 32, 32, generator=generator),
        "noise": torch.rand(2, 16, generator=generator),
    }
    report = fade(theirs, ALPHA_MIN, example=first, within="vit.layers")
    assert list(report.alphas) == ours.shortcut_record["alphas"]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05) for model in (ours, theirs)]
    worst, losses = 0.0, []
    for _ in range(STEPS):
        images = torch.randn(8, 3, 32, 32, generator=generator).cumsum(-1) / 4
        noise = torch.rand(8, 16, generator=generator)
        loss = masked_loss(ours, images, masking_from_noise(noise, 0.75), MaskedConfig(normalize_pixels=True))
        expected = theirs(images, noise=noise).loss
        for optimizer, value in zip(optimizers, (loss, expected)):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        losses.append(expected.item())
        worst = max(worst, abs(loss.item() - expected.item()) / expected.item())
    print(f"trained steps={STEPS} loss {losses[0]:.4f} -> {losses[-1]:.4f} largest relative difference {worst:.1e}")
    assert losses[-1] < losses[0] - 0.02
    assert worst < 1e-4
