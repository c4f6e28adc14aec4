"""A recipe, the user's options and the data become one config: the paper's numbers where a recipe claims them, the
data's own sizes where nothing was said, and the user's word above both."""

from __future__ import annotations

import pytest

from echoless.config import DataConfig, from_dict, to_dict
from echoless.config.facts import DataFacts, natural_patch
from echoless.config.options import PretrainOptions
from echoless.config.training import RunConfig
from echoless.errors import ConfigError
from echoless.recipes.resolve import resolve
from echoless.recipes.table import RECIPES
from echoless.training import learning_rate

IMAGENET = DataFacts(3, 375, 500, 1_281_167, accelerated=True)
SMALL = DataFacts(3, 32, 32, 50_000)


def settled(facts: DataFacts = SMALL, **options) -> RunConfig:
    return resolve(PretrainOptions("DATA", out="RUN", **options), facts, DataConfig(count=facts.count))


def test_mae_base_has_the_settings_of_the_paper():
    """Appendix A.1 of arXiv:2404.10947: 800 epochs, 40 of warm-up, batch 1024, peak rate 6e-4, mask 0.75."""
    config = settled(IMAGENET, recipe="mae-base")
    per_epoch = IMAGENET.count / 1024
    assert config.steps == pytest.approx(800 * per_epoch, abs=1)
    assert config.optim.warmup * config.steps == pytest.approx(40 * per_epoch, abs=1)
    peak = learning_rate(int(40 * per_epoch) + 1, steps=config.steps, batch_size=1024, config=config.optim)
    assert peak == pytest.approx(6e-4, rel=1e-6)
    assert (config.optim.betas, config.optim.weight_decay) == ((0.9, 0.95), 0.05)
    assert config.objective.mask_ratio == 0.75 and config.objective.normalize_pixels
    encoder = config.model.encoder
    assert (encoder.width, encoder.depth, encoder.heads, encoder.patch_size) == (768, 12, 12, 16)
    assert encoder.image_size == (224, 224) and encoder.shortcuts.alpha_min == 0.6
    assert not encoder.final_norm, "a norm would undo what the faded shortcuts do to the scale of the last block"


def test_each_small_recipe_fades_as_far_as_its_depth_asks_for():
    fades = {
        name: settled(SMALL, recipe=name).model.encoder.shortcuts.alpha_min for name in ("demo", "cifar10", "shapes")
    }
    assert fades == {"demo": 0.4, "cifar10": 0.6, "shapes": 0.6}


@pytest.mark.parametrize(
    ("side", "patch"), [(7, 1), (16, 2), (28, 4), (32, 4), (48, 4), (64, 8), (96, 8), (128, 16), (512, 16)]
)
def test_the_natural_patch_cuts_a_side_into_seven_to_fourteen_rows(side, patch):
    assert natural_patch(side) == patch
    assert side >= 240 or 7 <= side // patch <= 14


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("shape", [(1, 28, 28), (5, 32, 32), (3, 24, 48), (3, 100, 100), (3, 375, 500), (4, 5, 9)])
def test_every_recipe_fits_every_shape_and_survives_json(recipe, shape):
    config = settled(DataFacts(*shape, 1000), recipe=recipe)
    assert config.model.body.channels == shape[0]
    assert from_dict(RunConfig, to_dict(config)) == config


@pytest.mark.parametrize("count", [1, 3, 17, 200, 5_000_000])
def test_auto_trains_on_any_number_of_images(count):
    config = settled(DataFacts(3, 64, 64, count))
    assert 1 <= config.batch_size <= max(32, count) and 1 <= config.steps <= 50_000


def test_the_user_has_the_last_word():
    config = settled(
        alpha_min=0.8, variant="faded", decoder="plain", base_lr=3e-4, image_size=(64, 32), patch_size=16, ema=0.99
    )
    encoder = config.model.encoder
    assert (encoder.image_size, encoder.patch_size, encoder.shortcuts.alpha_min) == ((64, 32), 16, 0.8)
    assert config.model.decoder == "plain" and encoder.final_norm and not encoder.zero_init
    assert (config.optim.base_lr, config.optim.ema) == (3e-4, 0.99)


def rate_and_warmup(config: RunConfig) -> tuple[float, float]:
    peak = learning_rate(config.steps - 1, steps=config.steps, batch_size=config.batch_size, config=config.optim)
    return peak, config.optim.warmup * config.steps


def test_uvit_small_has_the_published_settings():
    """configs/cifar10_uvit_small.py of baofff/U-ViT: batch 128, 500k steps, AdamW 2e-4, warm-up 2500, constant."""
    config = settled(SMALL, recipe="uvit-small")
    assert (config.batch_size, config.steps) == (128, 500_000)
    assert rate_and_warmup(config) == pytest.approx((2e-4, 2500))
    optim = config.optim
    assert (optim.betas, optim.weight_decay, optim.ema, optim.decay) == ((0.99, 0.999), 0.03, 0.9999, "constant")
    body = config.model.body
    assert (body.kind, body.width, body.blocks, body.heads, body.patch_size) == ("uvit", 512, 13, 8, 2)
    assert config.objective.schedule == "vp"


def test_uvit_mid_has_the_published_settings():
    """Those of U-ViT for latents of 256 x 256 images: batch 1024, 300k steps, AdamW 2e-4, warm-up 5000, constant."""
    config = settled(SMALL, recipe="uvit-mid")
    assert (config.batch_size, config.steps) == (1024, 300_000)
    assert rate_and_warmup(config) == pytest.approx((2e-4, 5000))
    optim = config.optim
    assert (optim.betas, optim.weight_decay, optim.ema, optim.decay) == ((0.99, 0.99), 0.03, 0.9999, "constant")


def test_sit_xl2_has_the_published_settings():
    """train.py of willisma/SiT: AdamW 1e-4, no decay, batch 256, EMA .9999, one label in ten hidden."""
    config = settled(SMALL, recipe="sit-xl2")
    assert (config.batch_size, rate_and_warmup(config)[0]) == (256, pytest.approx(1e-4))
    assert (config.optim.weight_decay, config.optim.ema, config.objective.label_dropout) == (0.0, 0.9999, 0.1)
    body = config.model.body
    assert (body.width, body.depth, body.heads, body.patch_size) == (1152, 28, 16, 2)
    assert body.shortcuts.alpha_min == 0.8 and config.objective.prediction == "velocity"


@pytest.mark.parametrize("recipe", ["uvit-tiny", "sit-tiny"])
def test_diffusion_sees_pixels_from_minus_one_to_one_flipped_and_never_cropped(recipe):
    measured = DataConfig(count=9, mean=(0.1,) * 3, std=(0.2,) * 3)
    config = resolve(PretrainOptions("DATA", out="RUN", recipe=recipe), SMALL, measured)
    assert (config.data.mean, config.data.std) == ((0.5,) * 3, (0.5,) * 3)
    assert (config.data.crop_scale, config.data.flip, config.data.count) == (None, 0.5, 9)


def test_statistics_that_are_given_take_the_place_of_measured_ones():
    measured = DataConfig(count=9, mean=(0.1,) * 3, std=(0.2,) * 3)
    options = PretrainOptions("DATA", out="RUN", recipe="mae-base", mean=(0.3, 0.4, 0.5))
    config = resolve(options, SMALL, measured)
    assert (config.data.mean, config.data.std) == ((0.3, 0.4, 0.5), (0.2,) * 3)


def test_classes_are_told_where_the_data_has_labels_unless_switched_off():
    labelled = DataFacts(3, 32, 32, 100, classes=10)
    assert settled(labelled, recipe="sit-tiny").model.classes == 10
    assert settled(labelled, recipe="sit-tiny", conditional=False).model.classes is None
    assert settled(recipe="uvit-tiny").model.classes is None


def test_classes_without_labels_are_refused():
    with pytest.raises(ConfigError, match="conditional is True, but the data has no labels"):
        settled(recipe="uvit-tiny", conditional=True)


def test_another_batch_size_sees_as_many_images_and_epochs_count_them():
    whole, half = settled(recipe="cifar10"), settled(recipe="cifar10", batch_size=64)
    assert half.steps == 2 * whole.steps
    assert settled(epochs=2, batch_size=100).steps == 1000
    assert settled(max_steps=7).steps == 7


def test_image_and_patch_are_fitted_to_each_other_where_one_was_given():
    assert settled(DataFacts(3, 33, 50, 100), patch_size=16).model.encoder.image_size == (32, 48)
    assert settled(image_size=(64,)).model.encoder.patch_size == 8


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"recipe": "cifar"}, "recipe is 'cifar'; allowed: .*did you mean 'cifar10'"),
        ({"image_size": (1, 2, 3)}, "image_size is .*; allowed: one number, or height and width"),
        ({"image_size": (0,)}, "image_size is .*; allowed: whole numbers, 1 or more"),
        ({"patch_size": 0}, "patch_size is 0; allowed: a whole number, 1 or more"),
        ({"patch_size": 500}, "patch_size is 500; allowed: at most 32, the shorter side of the image"),
        ({"batch_size": 0}, "batch_size is 0; allowed: a whole number, 1 or more"),
        ({"epochs": 1, "max_steps": 1}, "allowed: either epochs or max_steps, not both"),
        ({"epochs": -1}, "epochs is -1; allowed: a number in"),
        ({"mean": (0.5,)}, r"mean is \(0.5,\); allowed: 3 numbers, one for each channel"),
        ({"std": (0.5, 0.5, 0.0)}, "std is .*; allowed: numbers above 0 and at most 1, for pixels scaled to 0..1"),
        ({"recipe": "sit-tiny", "mean": (0.5,) * 3}, "mean is not an option of recipe sit-tiny"),
        ({"crop_scale": (0.9, 0.1)}, "crop_scale is .*; allowed: two numbers"),
        (
            {"recipe": "uvit-tiny", "mask_ratio": 0.5},
            "mask_ratio is not an option of recipe uvit-tiny; allowed: conditional, latent, patch_size",
        ),
        ({"recipe": "uvit-tiny", "long_skips": False}, "long_skips is not an option of recipe uvit-tiny"),
        ({"recipe": "sit-tiny", "decoder": "plain"}, "decoder is not an option of recipe sit-tiny"),
        ({"recipe": "mae-tiny", "conditional": False}, "conditional is not an option of recipe mae-tiny"),
        ({"recipe": "sit-tiny", "label_dropout": 2.0}, "label_dropout is 2.0; allowed: a number in"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        settled(**options)


def test_another_depth_and_width_keep_the_size_of_a_head():
    encoder = settled(recipe="mae-base", depth=24, width=1024).model.encoder
    assert (encoder.depth, encoder.width, encoder.heads) == (24, 1024, 16)  # ViT-L
    encoder = settled(recipe="mae-base", width=384).model.encoder
    assert (encoder.depth, encoder.width, encoder.heads) == (12, 384, 6)  # ViT-S


def test_branches_start_at_zero_where_the_user_says_so_whatever_the_decoder():
    assert settled(decoder="plain", zero_init=True).model.encoder.zero_init
    assert not settled(zero_init=False).model.encoder.zero_init
    assert settled(decoder_depth=3).model.decoder_depth == 3


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"width": 100}, "width is 100"),
        ({"width": 0}, "width is 0"),
        ({"depth": 0}, "depth is 0"),
        ({"depth": -1}, "depth is -1"),
    ],
)
def test_a_size_that_no_encoder_has_is_refused(wrong, says):
    with pytest.raises(ConfigError, match=says):
        settled(recipe="mae-base", **wrong)
