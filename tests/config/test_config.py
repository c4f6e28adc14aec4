"""Every config either is valid or is refused in one sentence that names field, value and what is allowed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.config import (
    DiffusionConfig,
    FlowConfig,
    MAEConfig,
    RunConfig,
    ShortcutConfig,
    SiTConfig,
    UViTConfig,
    ViTConfig,
    from_dict,
    mae_preset,
    to_dict,
    with_body,
)
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.errors import ConfigError


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ShortcutConfig(alpha_min=-0.1), r"alpha_min is -0.1; allowed: a number in \[0, 1\], or 'auto'"),
        (lambda: ShortcutConfig(alpha_min=2), "alpha_min is 2"),
        (lambda: ShortcutConfig(schedule="cosin"), "schedule is 'cosin'.*did you mean 'cosine'"),
        (lambda: ShortcutConfig(variant="fadde"), "variant is 'fadde'.*did you mean 'faded'"),
        (lambda: ViTConfig(depth=0), "depth is 0; allowed: a whole number from 1 to 4096"),
        (lambda: ViTConfig(image_size=(30, 32), patch_size=4), "image height is 30; allowed: a multiple of the patch"),
        (lambda: ViTConfig(width=192, heads=5), "heads is 5; allowed: a divisor of width 192"),
        (lambda: ViTConfig(width=6, heads=3), "width is 6; allowed: a multiple of 4"),
        (lambda: ViTConfig(channels=0), "channels is 0"),
        (lambda: MAEConfig(decoder="plan"), "decoder is 'plan'.*did you mean 'plain'"),
        (lambda: MAEConfig(decoder_heads=7), "decoder_heads is 7; allowed: a divisor of decoder_width 512"),
        (lambda: mae_preset("tinny"), "preset is 'tinny'.*did you mean 'tiny'"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(ConfigError, match=sentence) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"encoder": {"widht": 96}}, "config.encoder has the unknown field 'widht'.*did you mean 'width'"),
        ({"encoder": {"width": "96"}}, "config.encoder.width is '96'; allowed: a value of type int"),
        ({"encoder": {"image_size": [32]}}, r"config.encoder.image_size is \[32\]; allowed: a list of 2 values"),
        ({"encoder": 3}, "config.encoder is 3; allowed: an object"),
        ({"decoder": 1}, "config.decoder is 1; allowed: long_skips, plain"),
        ({"encoder": {"zero_init": 1}}, "config.encoder.zero_init is 1; allowed: a value of type bool"),
    ],
)
def test_json_that_does_not_fit_is_refused_by_its_path(data, sentence):
    with pytest.raises(ConfigError, match=sentence):
        from_dict(MAEConfig, data)


RUNS = {
    ("mae", "masked"): RunConfig(),
    ("classifier", "supervised"): RunConfig(model=ClassifierConfig(), objective=SupervisedConfig()),
    ("uvit", "diffusion"): RunConfig(model=UViTConfig(), objective=DiffusionConfig()),
    ("sit", "flow"): RunConfig(model=SiTConfig(), objective=FlowConfig()),
}


@pytest.mark.parametrize("kinds", RUNS)
def test_every_kind_of_model_and_objective_says_so_in_json_and_comes_back(kinds):
    written = json.loads(json.dumps(to_dict(RUNS[kinds])))
    assert (written["model"]["kind"], written["objective"]["kind"]) == kinds
    assert from_dict(RunConfig, written) == RUNS[kinds]


@pytest.mark.parametrize("kinds", [("mae", "masked"), ("classifier", "supervised")])
def test_a_config_written_before_there_were_kinds_is_read_by_its_fields(kinds):
    written = json.loads(json.dumps(to_dict(RUNS[kinds])))
    for part in (written["model"], written["objective"], written["model"]["encoder"]):
        del part["kind"]
    assert from_dict(RunConfig, written) == RUNS[kinds]


def test_equal_fields_do_not_make_equal_kinds():
    """An empty U-ViT and an empty SiT are told apart by the kind alone."""
    assert isinstance(from_dict(RunConfig, {"model": {"kind": "sit"}}).model, SiTConfig)
    assert isinstance(from_dict(RunConfig, {"model": {"kind": "uvit"}}).model, UViTConfig)
    assert isinstance(from_dict(RunConfig, {"objective": {"kind": "flow"}}).objective, FlowConfig)


@pytest.mark.parametrize("kind", ["vit", None, 3, ["mae"], {}])
def test_an_unknown_kind_is_refused_with_the_known_ones(kind):
    with pytest.raises(ConfigError, match=r"config.model.kind is .*; allowed: mae, classifier, uvit, sit, moco, dino"):
        from_dict(RunConfig, {"model": {"kind": kind}})


@pytest.mark.parametrize("run", RUNS.values(), ids=[kinds[0] for kinds in RUNS])
def test_a_model_is_rebuilt_around_another_body(run):
    body = replace(run.model.body, shortcuts=ShortcutConfig(alpha_min=0.5))
    changed = with_body(run.model, body)
    assert type(changed) is type(run.model) and changed.body == body
    assert with_body(changed, run.model.body) == run.model


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2000),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["auto", "plain"]),
)
FUZZED = st.fixed_dictionaries(
    {},
    optional={
        "decoder": VALUES,
        "decoder_width": VALUES,
        "decoder_depth": VALUES,
        "decoder_heads": VALUES,
        "encoder": st.one_of(
            VALUES,
            st.dictionaries(
                st.sampled_from(
                    ["image_size", "patch_size", "channels", "width", "depth", "heads", "shortcuts", "typo"]
                ),
                st.one_of(VALUES, st.lists(VALUES, max_size=3), st.dictionaries(st.just("alpha_min"), VALUES)),
            ),
        ),
    },
)


@settings(max_examples=1000, derandomize=True)
@given(FUZZED)
def test_a_random_config_is_valid_or_refused_and_nothing_else(data):
    try:
        config = from_dict(MAEConfig, data)
    except ConfigError:
        return
    assert from_dict(MAEConfig, json.loads(json.dumps(to_dict(config)))) == config
