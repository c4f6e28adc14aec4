"""The snippet of every model card runs as it stands, and gives the features of echoless.

timm's are run in tests/tv/test_export_timm.py, where timm is installed. Run alone: pytest tests/exchange/test_card.py
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cards import KINDS, cosine_with_ours, make_run, run_usage, undefined_names, usage_of
from PIL import Image

import echoless
from echoless.exchange import export_encoder


@pytest.mark.parametrize("to", ["hf", "onnx"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_snippet_of_a_card_runs_and_gives_our_feature(kind, to, tmp_path):
    """That of ONNX passed `images`, which nothing defined; that of transformers, of five channels, `pixel_values`."""
    run = make_run(tmp_path / "run", kind)
    export_encoder(run, to, tmp_path / to)
    assert cosine_with_ours(run, tmp_path / to, kind) > 0.998


@pytest.mark.parametrize("kind", KINDS)
def test_a_snippet_for_timm_defines_every_name_that_it_uses(kind, tmp_path):
    """`torch.cat` was called without an import of torch."""
    export_encoder(make_run(tmp_path / "run", kind), "timm", tmp_path / "timm")
    code = usage_of(tmp_path / "timm")
    assert "import timm" in code and not undefined_names(code)
    assert "import torch" not in code or "torch." in code


def test_undefined_names_are_found():
    assert undefined_names("import a\nb = a.c(d, len(e))\nfrom f import g as h\nprint(b, h, g)") == {"d", "e", "g"}


def test_a_run_on_16_bit_images_has_a_snippet_that_keeps_their_levels(tmp_path):
    """`convert("L")` made all above 255 white: the features had a cosine of 0.46 with those of echoless."""
    (tmp_path / "scans").mkdir()
    for number in range(12):
        levels = np.random.default_rng(number).integers(600, 26000, (5, 6)).astype(np.float32)
        smooth = np.asarray(Image.fromarray(levels).resize((64, 48), Image.Resampling.BICUBIC))
        Image.fromarray(smooth.clip(0, 65535).astype(np.uint16)).save(tmp_path / "scans" / f"{number}.png")
    run = tmp_path / "run"
    echoless.pretrain(tmp_path / "scans", out=run, recipe="mae-micro", depth=2, max_steps=2, batch_size=4)
    encoder = echoless.load(run)
    for to in ("hf", "onnx"):
        report = export_encoder(run, to, tmp_path / to, tolerance=1.0)  # it is hardly trained
        assert "Photographs of phones" not in str(report) and "/ 65535" in usage_of(tmp_path / to)
        for file in sorted((tmp_path / "scans").iterdir()):
            theirs = torch.as_tensor(run_usage(tmp_path / to, file)["feature"])
            ours = encoder(encoder.preprocess(file)[None]).detach()
            assert torch.nn.functional.cosine_similarity(theirs, ours) > 0.999
    assert "no image processor for 16-bit images" in (tmp_path / "hf" / "README.md").read_text()
    assert not (tmp_path / "hf" / "preprocessor_config.json").exists()


def test_the_card_of_an_8_bit_run_says_how_files_of_16_bit_are_prepared(tmp_path):
    """convert("RGB") clips them: a stranger's features of such a file had a cosine of 0.12 with those of echoless."""
    encoder = echoless.load(make_run(tmp_path / "run", "colour"))
    report = export_encoder(tmp_path / "run", "hf", tmp_path / "hf")
    assert "Files of 16 bit are scaled to 8 bit: divide their values by 257 first" in str(report)
    levels = np.random.default_rng(0).integers(600, 60_000, (60, 96), dtype=np.uint16)
    Image.fromarray(levels).save(tmp_path / "scan.png")
    Image.fromarray((levels // 257).astype(np.uint8)).save(tmp_path / "as_said.png")
    scan, as_said = (encoder(encoder.preprocess(tmp_path / name)[None]) for name in ("scan.png", "as_said.png"))
    assert torch.nn.functional.cosine_similarity(scan, as_said) > 0.999
