"""Distances between sets of images carry their extractor's name, equal independent computations, keep references."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.linalg import sqrtm

from echoless.cli.main import main
from echoless.config import DiffusionConfig, UViTConfig, to_dict
from echoless.data import default_cache_dir, open_images
from echoless.errors import ConfigError, DataError, UntrustedFile
from echoless.evaluation import reference
from echoless.evaluation.extract import View, extract
from echoless.evaluation.extractor import open_extractor
from echoless.evaluation.frozen import load
from echoless.measures import frechet_distance, moments
from echoless.models import UViT
from echoless.runs import save_weights
from echoless.verbs.evaluate import evaluate

QUIET = {"train": "shapes:120", "test": "shapes:90@test"}


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> Path:
    """As `sample` writes them, but drawn from the validation stream: perfect samples."""
    folder = tmp_path_factory.mktemp("samples") / "pictures"
    folder.mkdir()
    pixels = np.stack(open_images("shapes:80@validation", cache="off").get(range(80)).pixels).transpose(0, 2, 3, 1)
    for index, picture in enumerate(pixels):
        Image.fromarray(np.ascontiguousarray(picture)).save(folder / f"{index:06d}.png")
    np.savez(folder.parent / "samples.npz", arr_0=pixels)
    return folder


def test_the_distance_is_that_of_scipy_on_the_features_of_the_extractor(run, samples):
    """Where the run is no diffusion model, it is the extractor: two sets of images are compared without any model."""
    found, floor = evaluate(run, metrics=("frechet",), samples=str(samples), **QUIET)
    encoder = load(run)
    view = View(encoder.default_layer)
    real, made = (
        extract(encoder, open_images(name, cache="off"), [view], cache=None)[view].features_ND.astype(np.float64)
        for name in ("shapes:90@test", "shapes:80@validation")
    )
    covariances = [np.cov(features, rowvar=False) for features in (real, made)]
    root = sqrtm(covariances[0] @ covariances[1]).real
    expected = ((real.mean(0) - made.mean(0)) ** 2).sum() + np.trace(covariances[0] + covariances[1] - 2 * root)
    assert found.value == pytest.approx(expected, rel=1e-4) and found.n == 80
    assert found.interval[0] < found.value < found.interval[1]
    assert found.protocol["extractor_fingerprint"] == encoder.fingerprint[:16]
    assert found.protocol["reference"] == "shapes:90@test" and found.protocol["reference_n"] == 90
    assert floor.protocol["samples"] == "images of --train, the floor" and floor.n == 80


def test_the_floor_of_a_set_in_the_order_of_its_classes_is_drawn_from_all_of_them(run, samples, tmp_path):
    """The first images would all be of one class, and far from the others."""
    for number in range(160):
        place = tmp_path / "photos" / ("dark" if number < 80 else "light") / f"{number:03d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 60, (32, 32, 3))
        Image.fromarray((noise + (0 if number < 80 else 190)).astype(np.uint8)).save(place)
    wanted = {"train": tmp_path / "photos", "samples": str(few(samples, 60, tmp_path)), "reference": "train"}
    found, floor = evaluate(
        run, metrics=("frechet",), **wanted, test=shutil.copytree(wanted["train"], tmp_path / "test")
    )
    assert floor.n == 60 and floor.protocol["drawn"] == "stratified" and "drawn" not in found.protocol
    encoder = load(run)
    view = View(encoder.default_layer)
    features = extract(encoder, open_images(wanted["train"]), [view], cache=None)[view]
    first = frechet_distance(moments(features.features_ND[:60]), moments(features.features_ND))
    print(f"floor of 60 drawn images {floor.value:.3g}, of the first 60 {first:.3g}")
    assert floor.value < first / 3


def few(samples: Path, count: int, tmp_path: Path) -> Path:
    folder = tmp_path / "few"
    folder.mkdir()
    for file in sorted(samples.iterdir())[:count]:
        shutil.copy(file, folder)
    return folder


def test_samples_inside_a_run_are_named_by_their_place_in_it(run, samples, tmp_path):
    """Two runs whose samples lie in the same place have the same protocol, so their numbers can be compared."""
    inside = tmp_path / "run"
    shutil.copytree(run, inside)
    shutil.copytree(samples, inside / "samples")
    detour = f"{inside}/../{inside.name}"
    found, _ = evaluate(inside, metrics=("frechet",), samples=str(inside / "samples"), extractor=detour, **QUIET)
    assert (found.protocol["samples"], found.protocol["extractor"]) == ("RUN/samples", str(inside))


def test_an_npz_file_of_samples_gives_the_same_number(run, samples):
    once = evaluate(run, metrics=("frechet", "precision"), samples=str(samples), **QUIET)
    twice = evaluate(run, metrics=("frechet", "precision"), samples=str(samples.parent / "samples.npz"), **QUIET)
    assert [m.metric for m in once] == ["frechet", "frechet", "precision", "recall"]
    assert [m.value for m in once] == [m.value for m in twice]


def test_the_reference_is_kept_and_found_by_content_and_a_damaged_one_is_computed_again(run, samples, monkeypatch):
    monkeypatch.setenv("ECHOLESS_CACHE", str(samples.parent / "cache"))
    first = evaluate(run, metrics=("frechet",), samples=str(samples), **QUIET)
    (kept,) = (default_cache_dir() / "references").glob("*/moments.safetensors")
    whole = kept.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(reference, "moments", lambda _: pytest.fail("it was there"))
        assert evaluate(run, metrics=("frechet",), samples=str(samples), **QUIET) == first
    kept.write_bytes(whole[: len(whole) // 2])
    assert evaluate(run, metrics=("frechet",), samples=str(samples), **QUIET) == first
    assert kept.read_bytes() == whole


class Scripted(torch.nn.Module):
    """The interface of the TorchScript Inception that FID tools share, with a projection in place of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(48, 12, generator=torch.Generator().manual_seed(0)) / 100)

    def forward(
        self, img: torch.Tensor, return_features: bool = False, use_fp16: bool = False, no_output_bias: bool = False
    ) -> torch.Tensor:
        assert img.dtype == torch.uint8
        small = torch.nn.functional.adaptive_avg_pool2d(img.to(torch.float32), [4, 4])
        features = small.flatten(1) @ self.weight
        return features if return_features else features.softmax(dim=1)


@pytest.fixture(scope="module")
def torchscript(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("inception") / "inception.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have an exported program
        torch.jit.script(Scripted()).save(str(file))
    return file


def test_a_torchscript_inception_measures_all_four(run, samples, torchscript):
    metrics = evaluate(
        run,
        metrics=("frechet", "precision", "inception-score"),
        samples=str(samples),
        extractor=f"inception:{torchscript}",
        **QUIET,
    )
    found = {m.metric: m for m in metrics if m.protocol["samples"] == str(samples)}
    assert set(found) == {"frechet", "precision", "recall", "inception-score"}
    pixels = torch.from_numpy(np.stack(open_images("shapes:80@validation", cache="off").get(range(80)).pixels))
    p = Scripted()(pixels).detach().double().numpy()
    parts = np.array_split(p, 10)
    scores = [np.exp((part * (np.log(part) - np.log(part.mean(0)))).sum(1).mean()) for part in parts]
    assert found["inception-score"].value == pytest.approx(np.mean(scores), rel=1e-4)
    assert all(m.protocol["extractor"] == f"inception:{torchscript}" for m in found.values())


def test_what_cannot_be_measured_is_refused_before_any_work(run, samples, torchscript, tmp_path):
    cases = [
        ({}, "there are no samples to measure; give --samples DIR"),
        ({"samples": str(samples), "metrics": ("inception-score",)}, "give --extractor inception:FILE"),
        ({"samples": str(samples), "extractor": "inception:nowhere.pt"}, "the file nowhere.pt does not exist"),
    ]
    for options, reason in cases:
        with pytest.raises(ConfigError, match=reason):
            evaluate(run, **{"metrics": ("frechet",), **options}, **QUIET)
    few = tmp_path / "few"
    few.mkdir()
    for index in range(3):
        Image.new("RGB", (32, 32)).save(few / f"{index}.png")
    with pytest.raises(DataError, match="there are 3 samples; allowed: 50 or more"):
        evaluate(run, metrics=("frechet",), samples=str(few), **QUIET)


def test_only_weights_of_that_network_are_taken_and_code_only_as_torchscript(tmp_path, torchscript):
    torch.save({"conv.weight": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(UntrustedFile, match="does not hold the Inception-v3 that FID tools share"):
        open_extractor(f"inception:{tmp_path / 'other.pth'}", (32, 32))
    torch.save({"x": print}, tmp_path / "code.pth")
    with pytest.raises(UntrustedFile, match="asks for"):
        open_extractor(f"inception:{tmp_path / 'code.pth'}", (32, 32))
    cut = tmp_path / "cut.pt"
    cut.write_bytes(torchscript.read_bytes()[:-200])
    with pytest.raises(UntrustedFile):
        open_extractor(f"inception:{cut}", (32, 32))


def test_the_verb_prints_the_extractor_beside_the_number(run, samples, capsys):
    words = ["evaluate", str(run), "--train", "shapes:120", "--metrics", "frechet", "--samples", str(samples)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "frechet" in printed and "extractor_fingerprint" in printed and str(run) in printed


def test_samples_of_a_diffusion_run_are_drawn_on_the_spot_and_need_a_named_extractor(run, tmp_path):
    config = UViTConfig(image_size=(8, 8), patch_size=4, width=16, depth=2, heads=2, classes=10)
    network, folder = UViT(config, torch.Generator().manual_seed(0)), tmp_path / "diffusion"
    (folder / "checkpoints").mkdir(parents=True)
    described = {"kind": "uvit", "model": to_dict(config), "objective": to_dict(DiffusionConfig())}
    half = {"mean": [0.5] * 3, "std": [0.5] * 3}
    save_weights(folder / "encoder", network.state_dict(), described | half, network.shortcut_record)
    wanted = {"metrics": ("frechet",), "draw": 50, "steps": 2, **QUIET}
    with pytest.raises(ConfigError, match="need the network whose features are compared; give --extractor"):
        evaluate(folder, **wanted)
    found, _ = evaluate(folder, extractor=str(run), **wanted)
    assert found.n == 50 and found.protocol["samples"] == "drawn: 50, 2 steps"
    assert (
        found.protocol["extractor"] == str(run) and (folder / "samples" / "n50-steps2-seed0-clip" / "grid.png").exists()
    )
    assert evaluate(folder, extractor=str(run), **wanted)[0] == found, "a second look draws nothing anew"


def test_the_reference_can_be_the_training_set_or_a_published_file_of_statistics(run, samples, tmp_path):
    """Statistics that numpy computed and saved, as the ADM suite saves them, give the same distance as the images."""
    given = {"metrics": ("frechet",), "samples": str(samples), **QUIET}
    found, floor = evaluate(run, reference="train", **given)
    assert (found.protocol["reference"], found.protocol["reference_n"]) == ("shapes:120", 120)
    assert floor.protocol["samples"] == "images of --test, the floor" and floor.n == 80
    encoder = load(run)
    view = View(encoder.default_layer)
    real = extract(encoder, open_images("shapes:120", cache="off"), [view], cache=None)[view].features_ND
    file = tmp_path / "statistics.npz"
    np.savez(file, mu=real.mean(0), sigma=np.cov(real, rowvar=False), mu_s=np.zeros(3))
    (published,) = evaluate(run, reference=str(file), **given)
    assert published.value == pytest.approx(found.value, rel=1e-4)
    assert published.protocol["reference"] == "statistics.npz" and "reference_n" not in published.protocol


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"mu": np.zeros(3)}, "it needs an array named 'sigma'"),
        ({"mu": np.zeros(3), "sigma": np.zeros((3, 2))}, r"allowed: \(D,\) and \(D, D\)"),
        ({"mu": np.zeros(2), "sigma": np.array([[1.0, 2.0], [0.0, 1.0]])}, "sigma is no covariance"),
        ({"mu": np.zeros(2), "sigma": np.array([[1.0, 0.0], [0.0, np.nan]])}, "not finite"),
        ({"mu": np.zeros(2, int), "sigma": np.eye(2)}, "allowed: float32, float64"),
        ({"mu": np.array([{}, {}]), "sigma": np.eye(2)}, "Python objects; arrays must hold numbers"),
    ],
)
def test_statistics_that_are_none_are_refused_before_any_work_and_nothing_is_unpickled(arrays, says, tmp_path):
    file = tmp_path / "statistics.npz"
    np.savez(file, **arrays)
    with pytest.raises((DataError, UntrustedFile), match=says):
        reference.published_moments(file)


def test_a_reference_that_is_not_there_or_cannot_serve_is_refused(run, samples, tmp_path):
    given = {"samples": str(samples), "train": "shapes:120"}
    with pytest.raises(ConfigError, match="reference is 'test', which needs --test"):
        evaluate(run, metrics=("frechet",), reference="test", **given)
    with pytest.raises(ConfigError, match=r"reference is 'nowhere\.npz'; allowed: train, test, or an \.npz file"):
        evaluate(run, metrics=("frechet",), reference="nowhere.npz", **given)
    np.savez(tmp_path / "statistics.npz", mu=np.zeros(2), sigma=np.eye(2))
    with pytest.raises(ConfigError, match="precision compares images"):
        evaluate(run, metrics=("precision",), reference=str(tmp_path / "statistics.npz"), **given)
    with pytest.raises(DataError, match="dimensions; they must be equal"):
        evaluate(run, metrics=("frechet",), reference=str(tmp_path / "statistics.npz"), **given)


def test_statistics_of_many_images_are_summed_up_as_they_come(run, samples, monkeypatch):
    """No features are stored, and the distance is the same."""
    given = {"metrics": ("frechet",), "samples": str(samples), "reference": "train", "cache": False, **QUIET}
    stored, _ = evaluate(run, **given)
    monkeypatch.setattr(reference, "STREAMED", 100)
    monkeypatch.setattr(reference, "moments", lambda _: pytest.fail("features were stored"))
    streamed, _ = evaluate(run, **given)
    assert streamed.value == pytest.approx(stored.value, rel=1e-5)
