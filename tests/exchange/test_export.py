"""An exported encoder, loaded by the other library in a process that cannot import echoless, gives our features.

The process is fresh, blocks the name `echoless`, reads images from a file and writes what it computed to another; our
features of the same images are computed here, by the faded network itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import echoless
from echoless.cli.main import main
from echoless.config import ShortcutConfig, ViTConfig, to_dict
from echoless.data.resizing import BY_SIZE, LARGE, SHARE
from echoless.errors import ConfigError, RunError
from echoless.exchange import export, export_encoder
from echoless.exchange.exported import open_encoder
from echoless.exchange.plain import reference_tokens, token_error, with_given_eps
from echoless.exchange.to_hf import processor_config
from echoless.models import ViT
from echoless.runs import RunFolder, save_weights

SQUARE = ViTConfig(image_size=(32, 32), patch_size=8, width=48, depth=8, heads=3, zero_init=False)
FADED = replace(SQUARE, shortcuts=ShortcutConfig(alpha_min=0.6))
WIDE = replace(FADED, image_size=(16, 40), channels=5, mlp_ratio=3.0)
NORMED = replace(FADED, final_norm=True, channels=1, norm_eps=1e-5)
PLAIN = replace(SQUARE, shortcuts=ShortcutConfig(alpha_min=1.0), final_norm=True)
DEEP = replace(FADED, depth=24, width=16, heads=2, shortcuts=ShortcutConfig(alpha_min=0.5))

BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "echoless":
            raise ModuleNotFoundError("this process knows no echoless")
sys.meta_path.insert(0, Blocker())
sys.path[:] = [entry for entry in sys.path if not entry.endswith("src")]
import warnings; warnings.simplefilter("ignore")
import numpy, torch
torch.set_num_threads(1)
folders = sys.argv[1:]  # each with images.npy beside the model; the answer goes there too
"""
HF = """
from transformers import AutoModel, ViTModel
for folder in folders:
    images = torch.from_numpy(numpy.load(folder + "/images.npy"))
    outputs = {}
    for name, kind in (("ViTModel", ViTModel), ("AutoModel", AutoModel)):
        model, info = kind.from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
        with torch.no_grad():
            out = model.eval()(images, output_hidden_states=True)
        outputs[name] = out.hidden_states[-1].numpy()
        outputs[name + "_last"] = out.last_hidden_state.numpy()
    numpy.savez(folder + "/answer.npz", **outputs)
"""
ONNX = """
import onnxruntime
folder = folders[0]
images = numpy.load(folder + "/images.npy")
session = onnxruntime.InferenceSession(folder + "/model.onnx")
parts = [session.run(["features", "tokens"], {"images": part}) for part in (images[:1], images[1:])]
features, tokens = (numpy.concatenate(arrays) for arrays in zip(*parts))
numpy.savez(folder + "/answer.npz", features=features, tokens=tokens)
"""


def trained(config: ViTConfig) -> ViT:
    """As if trained: every weight away from its start, the class token small as it is."""
    generator = torch.Generator().manual_seed(0)
    vit = ViT(config, generator)
    with torch.no_grad():
        for name, parameter in vit.named_parameters():
            if name != "cls_token":
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.03)
    return vit.eval()


def encoder_folder(path: Path, config: ViTConfig) -> tuple[Path, ViT]:
    vit = trained(config)
    channels = config.channels
    described = {"kind": "vit", "model": to_dict(config), "mean": [0.4] * channels, "std": [0.2] * channels}
    save_weights(path / "encoder", vit.state_dict(), described, vit.shortcut_record)
    return path / "encoder", vit


def in_a_process_without_us(code: str, jobs: dict[Path, torch.Tensor]) -> list[dict[str, np.ndarray]]:
    """What the code computes in each folder from its images."""
    for folder, images in jobs.items():
        np.save(folder / "images.npy", images.numpy())
    command = [sys.executable, "-c", BLOCKED + code, *map(str, jobs)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=next(iter(jobs)))
    assert done.returncode == 0, done.stderr
    answers = []
    for folder in jobs:
        with np.load(folder / "answer.npz") as arrays:
            answers.append(dict(arrays))
    return answers


def images_for(config: ViTConfig, batch: int = 3) -> torch.Tensor:
    return torch.randn(batch, config.channels, *config.image_size, generator=torch.Generator().manual_seed(5))


def tokens_of(vit: ViT, images: torch.Tensor) -> torch.Tensor:
    features = vit.features(images)
    return features[features.last_block]


def test_transformers_gives_our_features_without_our_code(tmp_path):
    """Faded; wide with five channels; with a final norm; and so deep that the alphas multiply to 4e-7."""
    configs = {"faded": FADED, "wide": WIDE, "normed": NORMED, "deep": DEEP}
    encoders, reports, jobs = {}, {}, {}
    for name, config in configs.items():
        folder, encoders[name] = encoder_folder(tmp_path, config)
        reports[name] = export_encoder(folder, "hf", tmp_path / name)
        jobs[tmp_path / name] = images_for(config)
    for name, theirs in zip(configs, in_a_process_without_us(HF, jobs)):
        images, vit = jobs[tmp_path / name], encoders[name]
        ours = tokens_of(vit, images)
        errors = [token_error(torch.from_numpy(theirs[kind]), ours) for kind in ("ViTModel", "AutoModel")]
        print(f"export hf {name}: reported={reports[name].error:.1e} other_process={max(errors):.1e}")
        assert reports[name].verified and max(errors) < 1e-4
        normed = torch.nn.functional.layer_norm(ours, ours.shape[-1:])
        expected = vit(images).detach() if vit.config.final_norm else normed
        torch.testing.assert_close(torch.from_numpy(theirs["ViTModel_last"]), expected, rtol=1e-3, atol=1e-3)


def test_onnxruntime_gives_our_features_without_our_code_in_any_batch(tmp_path):
    folder, vit = encoder_folder(tmp_path, replace(NORMED, depth=3))
    report = export_encoder(folder, "onnx", tmp_path / "onnx")
    images = images_for(NORMED, batch=4)
    (theirs,) = in_a_process_without_us(ONNX, {tmp_path / "onnx": images})
    ours = tokens_of(vit, images)
    error = token_error(torch.from_numpy(theirs["tokens"]), ours)
    print(f"export onnx reported={report.error:.1e} other_process={error:.1e}")
    assert report.verified and error < 1e-4
    np.testing.assert_allclose(theirs["features"], ours.mean(dim=1), rtol=1e-3, atol=1e-4)

    import onnx

    nodes = onnx.load(tmp_path / "onnx" / "model.onnx").graph.node
    assert nodes and not any(node.metadata_props or node.doc_string for node in nodes), "no paths of this machine"


@pytest.mark.parametrize(("side", "filter", "share"), [(LARGE, "bilinear", 1.0), (LARGE + 8, "bicubic", SHARE)])
def test_timm_is_told_to_see_an_image_as_evaluate_does(side, filter, share, tmp_path, monkeypatch):
    """Small images whole and bilinear, large ones cropped and bicubic; the border itself is small."""
    monkeypatch.setitem(sys.modules, "timm", None)
    folder, _ = encoder_folder(tmp_path, replace(FADED, image_size=(side, side)))
    export_encoder(folder, "timm", tmp_path / "timm")
    told = json.loads((tmp_path / "timm" / "config.json").read_text())["pretrained_cfg"]
    assert (told["interpolation"], told["crop_pct"]) == (filter, share)


def test_timm_folder_is_written_where_timm_is_not_installed_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    folder, _ = encoder_folder(tmp_path, FADED)
    report = export_encoder(folder, "timm", tmp_path / "timm")
    assert not report.verified and report.error < 1e-4
    assert "timm is not installed here" in str(report)
    settings = json.loads((tmp_path / "timm" / "config.json").read_text())
    assert settings["model_args"]["img_size"] == [32, 32]


@pytest.mark.parametrize("library", ["transformers", "timm"])
def test_a_library_that_is_broken_is_not_called_missing(library, tmp_path, monkeypatch):
    """torchvision of another build breaks both; `pip install` of what is installed mends nothing."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / f"{library}.py").write_text(
        "raise RuntimeError('operator torchvision::nms\\n does not exist')"
    )
    monkeypatch.delitem(sys.modules, library, raising=False)
    monkeypatch.syspath_prepend(tmp_path / "broken")
    folder, _ = encoder_folder(tmp_path, FADED)
    report = export_encoder(folder, "hf" if library == "transformers" else library, tmp_path / "out")
    said = (
        f"{library} is installed here but cannot be imported (operator torchvision::nms does not exist), so it was not"
    )
    assert not report.verified and said in str(report) and said in (tmp_path / "out" / "README.md").read_text()


def test_the_stream_is_scaled_only_where_a_fixed_eps_needs_it():
    faded, plain = trained(FADED), trained(PLAIN)
    assert with_given_eps(plain, 1e-6, reference_tokens(plain)).scale == 1.0
    scaled = with_given_eps(faded, 1e-6, reference_tokens(faded))
    assert scaled.scale > 1 and scaled.error < 1e-5


def test_the_image_processor_repeats_our_transform(tmp_path):
    """Grey and colour, against echoless.data: to one grey level, or two for a large input, which is cropped alike.

    A small image that is cropped is rounded to whole pixels there.
    """
    from PIL import Image
    from transformers import AutoImageProcessor

    from echoless.data.augment import resize_and_crop

    small = (((64, 64), 1, 1), ((60, 44), 40, 10))
    large = replace(FADED, depth=2, image_size=(144, 144), patch_size=16)
    cases = [(replace(FADED, depth=2), small), (replace(NORMED, depth=2), small), (large, (((300, 401), 2, 0.1),))]
    for number, (config, pictures) in enumerate(cases):
        channels = config.channels
        folder, _ = encoder_folder(tmp_path, config)
        export_encoder(folder, "hf", tmp_path / f"hf{number}")
        processor = AutoImageProcessor.from_pretrained(tmp_path / f"hf{number}")
        for shape, most, usual in pictures:
            coarse = np.random.default_rng(0).integers(0, 256, (5, 4, channels), dtype=np.uint8).squeeze()
            picture = Image.fromarray(coarse).resize(shape[::-1], Image.Resampling.BICUBIC)
            theirs = processor(picture, return_tensors="pt")["pixel_values"]
            pixels = np.atleast_3d(np.asarray(picture)).transpose(2, 0, 1)
            mean, std = [0.4] * channels, [0.2] * channels
            ours = resize_and_crop([pixels], size=config.image_size, mean=mean, std=std)
            assert theirs.shape == ours.shape
            levels = (theirs - ours).abs() * 0.2 * 255
            assert levels.max() <= most + 0.1 and levels.mean() <= usual


def test_an_export_without_an_image_processor_says_so(tmp_path):
    folder, _ = encoder_folder(tmp_path, replace(WIDE, depth=2))
    written = export_encoder(folder, "hf", tmp_path / "hf")
    assert "no image processor for 5 channels" in str(written)
    assert not (tmp_path / "hf" / "preprocessor_config.json").exists()


PHOTO_SIZES = [(427, 640), (333, 500), (301, 777), (777, 301), (131, 255), (900, 1201), (1501, 1999), (129, 129)]
OF_PHOTOS = {"height": 256, "width": 384, "file_height": 333, "file_width": 500}  # as about.json has it


@pytest.mark.parametrize("side", [32, 64, 96, 128])
def test_photographs_are_prepared_by_the_image_processor_as_by_embed(side, tmp_path):
    """A small input does not mean small images: its processor covered it with whole photographs, bilinear.

    Half a pixel at the border of a crop is rounded in two ways, which no processor can be told: a pixel of 32 is much.
    """
    import transformers
    from PIL import Image
    from sklearn.datasets import load_sample_images

    (tmp_path / "photos").mkdir()
    for i, (height, width) in enumerate(PHOTO_SIZES):
        photo = Image.fromarray(load_sample_images().images[i % 2]).resize((width, height), Image.Resampling.BICUBIC)
        photo.save(tmp_path / "photos" / f"{i}.jpg", quality=90)
    encoder_folder(tmp_path, replace(FADED, image_size=(side, side), patch_size=side // 8, channels=3))
    (tmp_path / "about.json").write_text(json.dumps({"data": OF_PHOTOS}))
    report = export_encoder(tmp_path, "hf", tmp_path / "hf")
    assert "short side up to 128 pixels are used whole, and resized bilinear: their" in str(report).splitlines()[-1]
    assert str(report).startswith(f"wrote {tmp_path / 'hf'}\n"), "hf (hf) says it twice"
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "hf")
    model = transformers.AutoModel.from_pretrained(tmp_path / "hf").eval()
    table = echoless.load(tmp_path).embed(tmp_path / "photos")
    ours = torch.from_numpy(np.stack(table["feature"].to_pylist()).astype(np.float32))
    pictures = [Image.open(tmp_path / "photos" / name) for name in table["path"].to_pylist()]
    with torch.no_grad():
        inputs = processor(pictures, return_tensors="pt")["pixel_values"]
        theirs = model(inputs, output_hidden_states=True).hidden_states[-1].mean(dim=1)
    cosines = torch.nn.functional.cosine_similarity(ours, theirs)
    fit = BY_SIZE.fit((side, side))
    spare = np.array([fit.shape_of(*size) for size in PHOTO_SIZES]) - side
    shifted = torch.from_numpy((spare // 2 != np.rint(spare / 2)).any(axis=1))
    print(f"hf processor, input {side}: cosine {cosines.mean():.6f}, least unshifted {cosines[~shifted].min():.6f}")
    assert cosines[~shifted].min() > 0.999 and cosines.min() > 0.97
    assert side == 32 or cosines.mean() > 0.999


@pytest.mark.parametrize(("channels", "mode"), [(3, "RGB"), (1, "L")])
def test_a_photograph_on_its_side_is_turned_by_the_snippet_of_the_card(channels, mode, tmp_path):
    """As phones store them. The snippet of the card is run as it stands; without the turn, features are others."""
    from PIL import Image

    folder, _ = encoder_folder(tmp_path, replace(FADED, channels=channels))
    report = export_encoder(folder, "hf", tmp_path / "hf")
    assert (
        "images with a short side above 128 pixels are first cropped to their central 87.5 %, and resized bicubic"
    ) in str(report)
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    Image.fromarray(pixels).resize((96, 60)).save(tmp_path / "photo.jpg", quality=95, exif=exif)
    opening = f'ImageOps.exif_transpose(Image.open("photo.jpg")).convert("{mode}")'
    card = (tmp_path / "hf" / "README.md").read_text()
    assert opening in str(report) and card.count(opening) == 2
    code = card.partition("```python\n")[2].partition("```")[0].replace('"DIR"', repr(str(tmp_path / "hf")))
    known: dict[str, torch.Tensor] = {}
    exec(code.replace('"photo.jpg"', repr(str(tmp_path / "photo.jpg"))), known)
    encoder = echoless.load(folder)
    with Image.open(tmp_path / "photo.jpg") as opened:
        for image in (tmp_path / "photo.jpg", opened):
            ours = encoder(encoder.preprocess(image)[None])
            assert torch.nn.functional.cosine_similarity(known["feature"].detach(), ours.detach()) > 0.999


def test_the_images_of_a_run_decide_how_an_export_prepares_images_and_tiles_count_as_images(tmp_path):
    folder, _ = encoder_folder(tmp_path, FADED)
    (tmp_path / "config.json").write_text("{}")
    for data, resample in (
        (OF_PHOTOS, 3),
        ({**OF_PHOTOS, "file_height": 100}, 2),
        ({"height": 96, "width": 96}, 2),
        ({"height": 96, "width": 96, "file_height": 900, "file_width": 900, "files": 5}, 2),
        ({}, 2),
    ):
        (tmp_path / "about.json").write_text(json.dumps({"data": data}))
        for source in (tmp_path, folder):
            assert processor_config(open_encoder(source))["resample"] == resample, (data, source)


def test_the_card_says_what_it_is_and_names_no_folder_of_this_machine(tmp_path):
    encoder_folder(tmp_path, FADED)
    run = RunFolder(tmp_path)
    run.write_config(
        {
            "recipe": "shapes",
            "steps": 40,
            "batch_size": 8,
            "data": {"path": str(tmp_path / "scans"), "count": 96, "fingerprint": "abc"},
        }
    )
    protocol = {"k": 20, "train": str(tmp_path / "scans"), "pooling": "mean"}
    run.add_results([{"metric": "knn", "value": 0.4123, "n": 100, "protocol": protocol}])
    report = export_encoder(tmp_path, "hf", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    for words in ("alpha from 1 to 0.6", "hidden_states[-1]", "scans, 96 images", "40 steps of 8", "knn", "41.23 %"):
        assert words in card, words
    assert "are first cropped to their central 87.5 %, and resized bicubic: their features differ" in card
    assert "0.97333" in card and report.settings["layer_norm_eps"] in card
    for file in (tmp_path / "out").iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "preprocessor_config.json",
    ]


REFUSED = {
    "alpha 0": ({"alpha_min": 0.0}, "an alpha is 0"),
    "learnable": ({"variant": "learnable"}, "a shortcut is Learnable"),
    "none": ({"variant": "none"}, "a shortcut is NoShortcut"),
    "scaled": ({"variant": "scale_both"}, "a shortcut is Scaled"),
}


@pytest.mark.parametrize("to", ["hf", "timm", "onnx"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_folded_exactly_is_refused_with_the_reason(case, to, tmp_path):
    shortcuts, reason = REFUSED[case]
    folder, _ = encoder_folder(tmp_path, replace(SQUARE, depth=2, shortcuts=ShortcutConfig(**shortcuts)))
    with pytest.raises(ConfigError, match=f"cannot be folded.*{reason}"):
        export_encoder(folder, to, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("out*"))


def test_an_encoder_in_half_precision_is_refused_where_its_weights_would_vanish():
    from echoless.exchange.plain import folded

    vit = trained(DEEP).half()
    with pytest.raises(ConfigError, match=r"in torch.float16; allowed"):
        folded(vit)


def test_an_export_that_differs_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    """As if the other library had computed something else; and weights with which nothing can be computed."""
    folder, _ = encoder_folder(tmp_path, replace(FADED, depth=2))
    target = export.TARGETS["hf"]

    def wrong(folder, source, images):
        tokens, version = target.read_back(folder, source, images)
        return tokens * 1.001, version

    monkeypatch.setitem(export.TARGETS, "hf", replace(target, read_back=wrong))
    with pytest.raises(RunError, match=r"differs from the encoder by 1.0e-03 \(as computed by transformers .*\)"):
        export_encoder(folder, "hf", tmp_path / "out")
    with torch.no_grad():
        vit = trained(replace(FADED, depth=2))
        vit.blocks[1].mlp.fc2.weight[0, 0] = float("inf")
    described = {"kind": "vit", "model": to_dict(vit.config)}
    save_weights(tmp_path / "bad", vit.state_dict(), described, vit.shortcut_record)
    with pytest.raises(RunError, match=r"numbers that are not finite in blocks\.1\.mlp\.fc2\.weight"):
        export_encoder(tmp_path / "bad", "hf", tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_an_encoder_in_which_eps_decides_is_refused_unless_more_is_allowed(tmp_path):
    """Hardly trained: its stream has faded to the size of eps, and each norm would need one of its own."""
    vit = ViT(replace(FADED, zero_init=True, depth=12), torch.Generator().manual_seed(0))
    with torch.no_grad():
        for branch in vit.branches():
            branch.output.weight.normal_(std=3e-4, generator=torch.Generator().manual_seed(1))
    described = {"kind": "vit", "model": to_dict(vit.config)}
    save_weights(tmp_path / "encoder", vit.state_dict(), described, vit.shortcut_record)
    with pytest.raises(RunError, match=r"allowed: 0.0001. Nothing was written. .* --to onnx keeps each of them"):
        export_encoder(tmp_path / "encoder", "hf", tmp_path / "out")
    assert not list(tmp_path.glob("out*"))
    report = export_encoder(tmp_path / "encoder", "hf", tmp_path / "out", tolerance=0.5)
    assert 1e-4 < report.error < 0.5 and f"{report.error:.1e}" in (tmp_path / "out" / "README.md").read_text()


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    folder, _ = encoder_folder(tmp_path, replace(FADED, depth=2))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match=r"out is not empty \(it holds thesis.txt\); give --out a new or empty folder"):
        export_encoder(folder, "hf", tmp_path / "out")
    (tmp_path / "out" / "thesis.txt").unlink()
    export_encoder(folder, "hf", tmp_path / "out")
    assert (tmp_path / "out" / "config.json").is_file()


def test_the_verb_prints_the_error_and_the_eps(tmp_path, capsys):
    folder, _ = encoder_folder(tmp_path, replace(FADED, depth=2))
    assert main(["export", str(folder), "--to", "hf", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"relative error of the last block's output \d\.\de-0\d", printed) and "layer_norm_eps" in printed
    assert main(["export", str(tmp_path / "nowhere"), "--to", "hf", "--out", str(tmp_path / "b")]) == 2
    assert "nowhere does not exist; give a run" in capsys.readouterr().err
