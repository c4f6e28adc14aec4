"""`sample` writes what it says: image i from (seed, i) alone, in any batch, in any number of processes, after any stop;
files that numpy and Pillow read; and a sentence for everything that cannot be.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image

from echoless.config import DiffusionConfig, FlowConfig, ShortcutConfig, SiTConfig, UViTConfig, to_dict
from echoless.errors import ConfigError, EcholessError, RunError
from echoless.evaluation.generate import open_generator
from echoless.models import SiT, UViT
from echoless.runs import save_weights
from echoless.storage import read_json_object, write_json
from echoless.sweeps.commands import command
from echoless.sweeps.starting import Starting
from echoless.verbs.sample import sample

SIZES = {"image_size": (8, 8), "patch_size": 4, "width": 16, "depth": 2, "heads": 2}


def denoiser(folder: Path, kind: str = "sit", *, classes: int | None = 3, channels: int = 3) -> Path:
    """A small network with weights that do something, in the folder that a run would write."""
    config_type, network, objective = {
        "sit": (SiTConfig, SiT, FlowConfig()),
        "uvit": (UViTConfig, UViT, DiffusionConfig()),
    }[kind]
    config = config_type(**SIZES, classes=classes, channels=channels, shortcuts=ShortcutConfig(alpha_min=0.7))
    model = network(config)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    half = [0.5] * channels
    about = {"kind": kind, "model": to_dict(config), "objective": to_dict(objective), "mean": half, "std": half}
    save_weights(folder, model.state_dict(), about, model.shortcut_record)
    return folder


@pytest.fixture(scope="module")
def sit(tmp_path_factory) -> Path:
    return denoiser(tmp_path_factory.mktemp("model") / "sit")


def arrays(out: Path) -> dict[str, np.ndarray]:
    with np.load(out / "samples.npz") as archive:
        return dict(archive)


def levels(out: Path) -> np.ndarray:
    return arrays(out)["arr_0"]


def picture(path: Path) -> np.ndarray:
    with Image.open(path) as opened:
        return np.asarray(opened)


@pytest.mark.parametrize("kind", ["sit", "uvit"])
def test_the_pixels_do_not_depend_on_the_batch_nor_on_how_many_are_drawn(kind, tmp_path):
    model = denoiser(tmp_path / "model", kind)
    wanted = {"steps": 3, "guidance": 2.0, "seed": 5}
    sample(model, out=tmp_path / "a", n=21, **wanted)
    sample(model, out=tmp_path / "b", n=21, batch_size=1, **wanted)
    sample(model, out=tmp_path / "c", n=7, batch_size=5, **wanted)
    sample(model, out=tmp_path / "d", n=7, batch_size=5, **wanted | {"seed": 6})
    assert np.array_equal(levels(tmp_path / "a"), levels(tmp_path / "b"))
    assert np.array_equal(levels(tmp_path / "a")[:7], levels(tmp_path / "c"))
    assert not np.array_equal(levels(tmp_path / "c"), levels(tmp_path / "d"))
    assert levels(tmp_path / "a").std() > 10  # something is there


def test_numpy_and_pillow_read_the_same_images_in_the_layout_of_adm(sit, tmp_path):
    assert sample(sit, out=tmp_path / "out", n=5, steps=2, batch_size=2) == 5
    archive = arrays(tmp_path / "out")
    assert list(archive) == ["arr_0", "arr_1"]
    assert (archive["arr_0"].shape, archive["arr_0"].dtype) == ((5, 8, 8, 3), np.uint8)
    assert archive["arr_1"].tolist() == [0, 1, 2, 0, 1]
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [*(f"{i:06d}.png" for i in range(5)), "grid.png", "samples.json", "samples.npz"]
    for index in range(5):
        assert np.array_equal(picture(tmp_path / "out" / f"{index:06d}.png"), archive["arr_0"][index])
    grid = picture(tmp_path / "out" / "grid.png")
    assert grid.shape == (10, 50, 3) and np.array_equal(grid[:8, 10:18], archive["arr_0"][1])


@pytest.mark.parametrize(("channels", "shape"), [(1, (8, 8)), (3, (8, 8, 3)), (5, None)])
def test_any_number_of_channels_is_drawn_and_those_a_png_has_are_pictures(channels, shape, tmp_path):
    model = denoiser(tmp_path / "model", "uvit", classes=None, channels=channels)
    sample(model, out=tmp_path / "out", n=2, steps=1)
    archive = arrays(tmp_path / "out")
    assert list(archive) == ["arr_0"] and archive["arr_0"].shape == (2, 8, 8, channels)
    pictures = sorted((tmp_path / "out").glob("0*.png"))
    assert [picture(path).shape for path in pictures] == ([shape] * 2 if shape else [])


def test_classes_are_those_asked_for_and_change_the_image(sit, tmp_path):
    sample(sit, out=tmp_path / "a", n=4, steps=2, classes=(2, -1))
    sample(sit, out=tmp_path / "b", n=4, steps=2, classes=(2, 0))
    one, two = (arrays(tmp_path / name) for name in "ab")
    assert one["arr_1"].tolist() == [2, -1, 2, -1]
    assert np.array_equal(one["arr_0"][[0, 2]], two["arr_0"][[0, 2]])
    assert not np.array_equal(one["arr_0"][1], two["arr_0"][1])


def test_a_command_that_was_killed_continues_with_the_same_bytes(sit, tmp_path, monkeypatch):
    import echoless.evaluation.draw as module

    sample(sit, out=tmp_path / "whole", n=9, steps=2, batch_size=2)
    written = []

    def dies(out, indices, images):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(indices)
        original(out, indices, images)

    original = module._write
    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", dies)
        with pytest.raises(KeyboardInterrupt):
            sample(sit, out=tmp_path / "cut", n=9, steps=2, batch_size=2)
    assert not (tmp_path / "cut" / "samples.npz").exists()
    monkeypatch.setattr(
        module, "_write", lambda out, indices, images: (written.append(indices), original(out, indices, images))
    )
    assert sample(sit, out=tmp_path / "cut", n=9, steps=2, batch_size=2, resume=True) == 9
    assert len(written) == 5  # three before, two after: nothing was drawn twice
    files = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == files
    for name in files:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


def test_a_resume_with_another_batch_size_draws_only_what_is_missing(sit, tmp_path, monkeypatch):
    """Also with the default, when the size was not repeated."""
    import echoless.evaluation.draw as module

    sample(sit, out=tmp_path / "whole", n=9, steps=2)
    original, written, cut = module._write, [], tmp_path / "cut"

    def note(out, indices, images):
        written.append(indices)
        if len(written) == 3:
            raise KeyboardInterrupt
        original(out, indices, images)

    monkeypatch.setattr(module, "_write", note)
    with pytest.raises(KeyboardInterrupt):
        sample(sit, out=cut, n=9, steps=2, batch_size=2)
    (cut / "parts" / "00000000-00000001.npy").unlink()
    np.save(cut / "parts" / "00000003-00000004.npy", np.zeros(1))  # overlaps, as earlier versions left it
    assert sample(sit, out=cut, resume=True) == 9
    assert written[3:] == [range(2), range(4, 9)]
    assert (cut / "samples.npz").read_bytes() == (tmp_path / "whole" / "samples.npz").read_bytes()


def test_two_commands_do_not_fill_one_folder(sit, tmp_path, monkeypatch):
    """With --overwrite, the second would delete and mix in images of another seed under the record of the first."""
    import echoless.evaluation.draw as module

    original, out = module._write, tmp_path / "out"

    def second(*given):
        for how in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(RunError, match="out is being filled by another process"):
                sample(sit, out=out, n=2, steps=1, **how)
        original(*given)

    monkeypatch.setattr(module, "_write", second)
    assert sample(sit, out=out, n=2, steps=1) == 2
    assert sorted(path.name for path in out.iterdir()) == [
        "000000.png",
        "000001.png",
        "grid.png",
        "samples.json",
        "samples.npz",
    ]


def test_samples_can_be_drawn_before_1980(sit, tmp_path, monkeypatch):
    """A machine whose clock was never set: zip files know no earlier year."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert sample(sit, out=tmp_path / "out", n=2, steps=1) == 2


def test_a_kill_after_the_archive_leaves_no_parts_to_the_next_command(sit, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", mock.Mock(side_effect=KeyboardInterrupt))
        sample(sit, out=out, n=2, steps=1)
    assert (out / "parts").is_dir()
    assert sample(sit, out=out, resume=True) == 2 and not (out / "parts").exists()


def test_a_signal_stops_between_batches_and_says_how_to_continue(sit, tmp_path, monkeypatch, capsys):
    import echoless.evaluation.draw as module

    original = module._write
    monkeypatch.setattr(module, "_write", lambda *given: (original(*given), os.kill(os.getpid(), signal.SIGTERM)))
    assert sample(sit, out=tmp_path / "out", n=4, steps=1, batch_size=2) == 0
    assert "stopped by SIGTERM" in capsys.readouterr().err
    assert len(list((tmp_path / "out" / "parts").iterdir())) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n": 0}, "n is 0; allowed: a whole number"),
        ({"sampler": "ddm"}, "sampler is 'ddm'.*did you mean 'ddim'"),
        ({"sampler": "em"}, "sampler is 'em', which is not for this objective"),
        ({"steps": 0}, "steps is 0"),
        ({"classes": (3,)}, r"classes is \(3,\); allowed: -1 \(none\) to 2"),
        ({"guidance": -1.0}, "guidance is -1.0"),
        ({"guidance_channels": "two"}, "guidance_channels is 'two'; allowed: all, first-three"),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(options, sentence, sit, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        sample(sit, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_guidance_without_classes_is_refused(tmp_path):
    model = denoiser(tmp_path / "model", classes=None)
    for options in ({"guidance": 2.0}, {"classes": (0,)}):
        with pytest.raises(ConfigError, match=r"is .*, but .* was trained without classes"):
            sample(model, out=tmp_path / "out", **options)


def test_a_folder_is_never_overwritten_by_accident(sit, tmp_path):
    out = tmp_path / "out"
    sample(sit, out=out, n=2, steps=1)
    with pytest.raises(RunError, match=r"is not empty; give --resume .* --overwrite"):
        sample(sit, out=out, n=2, steps=1)
    with pytest.raises(RunError, match="steps was 1 and is 2; --resume cannot change it"):
        sample(sit, out=out, n=2, steps=2, resume=True)
    assert sample(sit, out=out, n=2, steps=1, resume=True) == 2
    assert sample(sit, out=out, n=3, steps=1, overwrite=True) == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match="holds other files than samples"):
        sample(sit, out=tmp_path / "mine", n=2, overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_a_resume_keeps_what_is_not_given_and_refuses_another_value_by_name(sit, tmp_path):
    """Also where the value equals the default: it was given."""
    out = tmp_path / "out"
    first = {"n": 3, "steps": 2, "guidance": 2.0, "seed": 5, "classes": (1,), "guidance_channels": "first-three"}
    assert sample(sit, out=out, sampler="euler", **first) == 3
    before = levels(out)
    (out / "samples.npz").unlink()
    assert sample(sit, out=out, resume=True) == 3
    assert np.array_equal(levels(out), before)
    defaults = {"n": 64, "steps": 20, "guidance": 1.0, "seed": 0, "guidance_channels": "all", "sampler": "heun"}
    for name, value in defaults.items():
        with pytest.raises(RunError, match=f"^{name} was .* and is {value!r}; --resume cannot change it"):
            sample(sit, out=out, resume=True, **{name: value})


def test_guesses_are_clipped_where_there_is_black_and_white(sit, tmp_path):
    """Of a diffusion of pixels, unless asked not to; never a flow. Older samples do not say it: they were not."""
    uvit = denoiser(tmp_path / "uvit", "uvit")
    drawn = {clip: tmp_path / f"clip {clip}" for clip in (True, False)}
    for clip, out in drawn.items():
        sample(uvit, out=out, n=2, steps=3, clip=clip)
        assert read_json_object(out / "samples.json")["clip"] is clip
    assert not np.array_equal(levels(drawn[True]), levels(drawn[False]))
    with pytest.raises(RunError, match="clip was True and is False; --resume cannot change it"):
        sample(uvit, out=drawn[True], n=2, steps=3, clip=False, resume=True)
    old = {name: value for name, value in read_json_object(drawn[False] / "samples.json").items() if name != "clip"}
    write_json(drawn[False] / "samples.json", old)
    assert sample(uvit, out=drawn[False], n=2, steps=3, clip=False, resume=True) == 2
    sample(sit, out=tmp_path / "flow", n=2, steps=1)
    assert read_json_object(tmp_path / "flow" / "samples.json")["clip"] is False


def test_bounds_are_those_of_pixels_and_latents_have_none(tmp_path):
    low, high = open_generator(denoiser(tmp_path / "pixels", "uvit")).bounds()
    assert (low.flatten().tolist(), high.flatten().tolist()) == ([-1.0] * 3, [1.0] * 3)
    imported = replace(open_generator(tmp_path / "pixels"), mean=(0.0,) * 3, std=(1.0,) * 3)
    assert imported.bounds() is None and not imported.clips


def test_a_model_that_draws_nothing_is_refused(tmp_path):
    with pytest.raises(EcholessError, match="nothing does not exist; give a run"):
        sample(tmp_path / "nothing", out=tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EcholessError, match="empty holds no trained model"):
        sample(tmp_path / "empty", out=tmp_path / "out")


@pytest.mark.slow
def test_two_processes_draw_what_one_draws(sit, tmp_path):
    sample(sit, out=tmp_path / "one", n=21, steps=3, batch_size=4)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port)
    words = command("sample", str(sit), out="two", n=21, steps=3, batch_size=3)
    start = Starting(launcher=launcher).arguments(words)  # as a sweep with --launcher starts it
    done = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(levels(tmp_path / "one"), levels(tmp_path / "two"))
    assert json.loads((tmp_path / "two" / "samples.json").read_text())["n"] == 21
    print("sample: 21 images, 1 and 2 processes, batches of 4 and 3: 0 pixels differ")


@pytest.mark.parametrize("sampler", ["dopri5", "heun"])
def test_the_number_of_images_at_a_time_changes_pixels_by_rounding_only(sit, sampler, tmp_path):
    """Noise and class are those of the image's number; the largest difference is one grey level."""
    wanted = {"n": 5, "steps": 3, "sampler": sampler, "guidance": 2.0}
    for name, at_once in (("a", 4), ("b", 2), ("c", 7)):
        sample(sit, out=tmp_path / name, at_once=at_once, **wanted)
        assert read_json_object(tmp_path / name / "samples.json")["at_once"] == at_once
    reference = levels(tmp_path / "a").astype(int)
    off = [np.abs(levels(tmp_path / name) - reference).max() for name in "bc"]
    print(f"{sampler}: 5 images 4, 2 and 7 at a time: largest difference {max(off)} grey levels")
    assert max(off) <= 1
    with pytest.raises(RunError, match="at_once was 2 and is 4; --resume cannot change it"):
        sample(sit, out=tmp_path / "b", at_once=4, resume=True, **wanted)


def test_bf16_is_the_networks_alone_and_is_recorded(sit, tmp_path):
    """A sampler in bf16 would be off by whole grey levels per step; a network is off by its own rounding."""
    for precision in ("fp32", "bf16", "auto"):
        sample(sit, out=tmp_path / precision, n=4, steps=4, precision=precision)
    said = {p: read_json_object(tmp_path / p / "samples.json")["precision"] for p in ("fp32", "bf16", "auto")}
    assert said == {"fp32": "fp32", "bf16": "bf16", "auto": "fp32"}, "a CPU has no use for bf16"
    exact, rounded = (levels(tmp_path / p).astype(int) for p in ("fp32", "bf16"))
    assert np.array_equal(exact, levels(tmp_path / "auto"))
    off = np.abs(exact - rounded)
    assert 0 < off.mean() < 4, off.mean()


def test_samples_of_older_versions_can_be_continued(sit, tmp_path):
    """They name neither precision nor the number of images at a time: fp32, sixteen."""
    out = tmp_path / "out"
    sample(sit, out=out, n=3, steps=1)
    before = levels(out)
    old = {k: v for k, v in read_json_object(out / "samples.json").items() if k not in ("at_once", "precision")}
    write_json(out / "samples.json", old)
    (out / "samples.npz").unlink()
    assert sample(sit, out=out, n=3, steps=1, resume=True) == 3
    assert np.array_equal(levels(out), before)


def test_samples_of_a_snapshot_name_its_step(sit, tmp_path):
    shutil.copytree(sit, tmp_path / "step-00000040")
    sample(tmp_path / "step-00000040", out=tmp_path / "out", n=2, steps=1)
    assert read_json_object(tmp_path / "out" / "samples.json")["step"] == 40
    assert sample(tmp_path / "step-00000040", out=tmp_path / "out", n=2, steps=1, resume=True) == 2
