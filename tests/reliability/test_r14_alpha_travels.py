"""R14: weights trained under one set of shortcuts are refused under another, with both tables shown."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tiny import tiny_config, tiny_images, tiny_run

from echoless.config import ShortcutConfig, ViTConfig, to_dict
from echoless.errors import AlphaMismatch
from echoless.models import ViT
from echoless.runs import load_weights, require_same_shortcuts, save_weights


def vit(depth: int = 2, **shortcuts) -> ViT:
    return ViT(
        ViTConfig(
            image_size=(8, 8), patch_size=4, width=16, heads=2, depth=depth, shortcuts=ShortcutConfig(**shortcuts)
        )
    )


VARIANTS = [
    *({"alpha_min": alpha_min} for alpha_min in (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)),
    {"alpha_min": 0.6, "per": "block"},
    {"alpha_min": 0.6, "schedule": "cosine"},
    {"alpha_min": 0.6, "schedule": "constant"},
    {"alpha_min": 0.6, "fade": "mlp"},
    {"alpha_min": 0.6, "fade": "attention"},
    {"alpha_min": 0.6, "depth": 3},
    {"variant": "scale_both"},
    {"variant": "scale_branch"},
    {"variant": "learnable"},
    {"variant": "magnitude_preserving"},
    {"variant": "none"},
]


def test_every_mismatched_pair_is_refused_and_every_equal_one_accepted():
    records = [vit(**options).shortcut_record for options in VARIANTS]
    refused = 0
    for (i, ours), (j, theirs) in itertools.product(enumerate(records), repeat=2):
        if i == j:
            require_same_shortcuts(ours, theirs)
            continue
        with pytest.raises(AlphaMismatch):
            require_same_shortcuts(ours, theirs)
        refused += 1
    print(f"R14 mismatched pairs={refused} refused={refused}")
    assert refused >= 200


def test_the_alphas_are_in_the_file_and_both_tables_are_shown(tmp_path):
    faded = vit(alpha_min=0.6)
    save_weights(tmp_path / "encoder", faded.state_dict(), to_dict(faded.config), faded.shortcut_record)
    loaded = load_weights(tmp_path / "encoder")
    assert loaded.shortcuts["alphas"] == faded.shortcut_record["alphas"]
    with pytest.raises(AlphaMismatch) as caught:
        require_same_shortcuts(vit(alpha_min=0.7).shortcut_record, loaded.shortcuts)
    assert "0.7" in str(caught.value) and "0.6" in str(caught.value)


def test_a_run_is_not_resumed_under_another_alpha(tmp_path):
    images = tiny_images()
    config = tiny_config(images, steps=4, alpha_min=0.6)
    tiny_run(tmp_path / "run", images, config)
    other = tiny_config(images, steps=8, alpha_min=0.8)
    with pytest.raises(AlphaMismatch, match="the shortcuts differ"):
        tiny_run(tmp_path / "run", images, other, resume=True)


def test_an_equal_network_is_one_thing_under_either_name():
    assert vit(alpha_min=1.0).shortcut_record == vit(variant="identity", alpha_min=0.6).shortcut_record


def test_a_warm_start_moves_the_weights_and_keeps_the_function(tmp_path):
    import torch

    from echoless.models import MAE
    from echoless.objectives import random_masking
    from echoless.training import warm_start

    images = tiny_images()
    config = tiny_config(images, steps=12, alpha_min=1.0, ema=None)
    tiny_run(tmp_path / "run", images, config)
    faded = replace(config.model.encoder, shortcuts=ShortcutConfig(alpha_min=0.6))
    old, new = MAE(config.model), MAE(replace(config.model, encoder=faded))
    assert warm_start(old, tmp_path / "run").startswith("started from")
    assert "the function is unchanged" in warm_start(new, tmp_path / "run")
    batch = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    masking = random_masking(4, 16, 0.75, torch.Generator().manual_seed(1))
    torch.testing.assert_close(new(batch, masking), old(batch, masking), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(new.features(batch).pool(), old.features(batch).pool(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", ["scale_both", "scale_branch", "magnitude_preserving", "learnable"])
def test_a_warm_start_into_shortcuts_that_do_not_fold_is_refused(variant, tmp_path):
    from echoless.errors import RunError
    from echoless.models import MAE
    from echoless.training import warm_start

    images = tiny_images()
    config = tiny_config(images, steps=1, alpha_min=0.6)
    tiny_run(tmp_path / "run", images, config)
    other = replace(config.model.encoder, shortcuts=ShortcutConfig(variant=variant))
    with pytest.raises(RunError, match="--init cannot convert weights from or to"):
        warm_start(MAE(replace(config.model, encoder=other)), tmp_path / "run")


def test_the_record_is_the_same_whichever_way_the_alphas_came_about():
    from echoless.shortcuts import alphas, fold, unfold

    faded = vit(alpha_min=0.6)
    assert unfold(vit(variant="identity"), alphas(2, alpha_min=0.6)).shortcut_record == faded.shortcut_record
    assert fold(faded).shortcut_record == vit(variant="identity").shortcut_record
