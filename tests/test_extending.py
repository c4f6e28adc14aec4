"""`docs/extending.md` in practice: one of each kind, added from outside the package through its table, and run.

Run alone: pytest tests/test_extending.py
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import echoless
from echoless.cli.main import main
from echoless.config import DataConfig, OptimConfig, RunConfig, ShortcutConfig, ViTConfig
from echoless.config.body import AroundEncoder
from echoless.config.metrics import METRICS, YIELDS, Metric, MetricInfo
from echoless.config.training import MODEL_CONFIGS, OBJECTIVE_CONFIGS
from echoless.data.content import stamp
from echoless.data.opening import SOURCES
from echoless.data.sources import read_in_order
from echoless.evaluation.registry import MEASUREMENTS, FeatureSource, Measurement
from echoless.exchange.export import TARGETS, export_encoder
from echoless.exchange.target import Target, Written
from echoless.models import ViT
from echoless.models.body import EncoderModel
from echoless.models.registry import MODELS, Architecture
from echoless.randomness import generator_for
from echoless.recipes.table import RECIPES
from echoless.runs.open import load_body
from echoless.training.task import OBJECTIVES
from echoless.verbs.signature import signature_of
from echoless.verbs.table import VERBS, Verb

ENCODER = ViTConfig(
    image_size=(32, 32),
    patch_size=8,
    width=32,
    depth=2,
    heads=1,
    zero_init=False,
    shortcuts=ShortcutConfig(alpha_min=0.7),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    echoless.pretrain("shapes:64", out=out, recipe="demo", max_steps=2, batch_size=16)
    return out


# A recipe: one function, one line.


def small_masked(facts) -> RunConfig:
    """A masked autoencoder that trains in seconds."""
    return replace(RECIPES["demo"](facts), recipe="small-masked", steps=2, batch_size=8)


def test_a_recipe(tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "small-masked", small_masked)
    assert echoless.pretrain("shapes:32", out=tmp_path / "run", recipe="small-masked")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["recipe"] == "small-masked"
    assert "small-masked" in echoless.list_recipes()


# A data source: a text file that lists image files, one a line.


class ListSource:
    def __init__(self, files: list[Path]) -> None:
        self.paths = [line for file in files for line in file.read_text().split()]
        self._folder = files[0].parent
        self.stamps = [stamp(self._folder / path) for path in self.paths]
        self.labels, self.class_names = None, None

    def read(self, index: int) -> bytes:
        return (self._folder / self.paths[index]).read_bytes()

    def chunks(self):
        return read_in_order(self)


def test_a_data_source(tmp_path, monkeypatch, trained):
    for name in ("b", "a"):
        Image.fromarray(np.full((32, 32, 3), ord(name), np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "photos.list").write_text("b.png\na.png\n")
    monkeypatch.setitem(SOURCES, ".list", ListSource)
    table = echoless.load(trained).embed(tmp_path / "photos.list")
    assert table["path"].to_pylist() == ["b.png", "a.png"]


# A measurement: how large the features are.


def feature_norm(source: FeatureSource) -> list[Metric]:
    features_ND = source.train[source.view].features_ND
    value = float(np.linalg.norm(features_ND, axis=1).mean())
    return [Metric(metric="norm", value=value, n=len(features_ND), protocol=source.protocol)]


def test_a_measurement(trained, monkeypatch):
    info = MetricInfo("Mean norm", "norm", "number", 0, "Mean Euclidean norm of a feature vector.")
    monkeypatch.setitem(METRICS, "norm", info)
    monkeypatch.setitem(YIELDS, "norm", ("norm",))
    monkeypatch.setitem(MEASUREMENTS, "norm", Measurement(measure=feature_norm))
    metrics = echoless.evaluate(trained, train="shapes:40", metrics=("norm",))
    assert [metric.protocol["features"] for metric in metrics] == ["trained", "raw pixels", "untrained"]
    assert metrics[0].value > 0 and "norm" in str(metrics)


# An export target: the folded weights as an .npz file.


def write_npz(folder: Path, source, reference) -> Written:
    np.savez(folder / "weights.npz", **{name: value.numpy() for name, value in source.encoder.state_dict().items()})
    return Written(error=0.0, settings={"format": "npz"}, feature="the last block", usage="np.load('weights.npz')")


def read_npz(folder: Path, source, images: Tensor) -> tuple[Tensor, str]:
    again = ViT(source.encoder.config)
    again.load_state_dict({name: torch.from_numpy(value) for name, value in np.load(folder / "weights.npz").items()})
    features = again.features(images)
    return features[features.last_block], np.__version__


def test_an_export_target(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(TARGETS, "npz", Target("numpy", "none", write_npz, read_npz))
    report = export_encoder(trained, "npz", tmp_path / "exported")
    assert report.verified and report.error == 0
    assert (tmp_path / "exported" / "weights.npz").is_file()


# A verb: its options, and a function of them.


@dataclass(frozen=True, kw_only=True)
class CountOptions:
    """Count the parameters of an encoder."""

    run: str = field(kw_only=False)
    """A run or an encoder folder."""


@signature_of(CountOptions)
def count(options: CountOptions) -> int:
    return sum(tensor.numel() for tensor in load_body(options.run).model.parameters())


def test_a_verb(trained, monkeypatch, capsys):
    verb = Verb("about", CountOptions, lambda _, counted: f"{counted} parameters", function=f"{__name__}:count")
    monkeypatch.setitem(VERBS, "count", verb)
    assert main(["count", str(trained)]) == 0
    assert capsys.readouterr().out == f"{count(trained)} parameters\n"
    assert main(["help", "count"]) == 0 and "A run or an encoder folder." in capsys.readouterr().out


# An objective with its model: which of four rotations was the image given?


@dataclass(frozen=True, kw_only=True, slots=True)
class RotationModelConfig(AroundEncoder[ViTConfig]):
    kind: ClassVar[str] = "rotation-model"

    encoder: ViTConfig = ENCODER

    @property
    def title(self) -> str:
        return f"rotation predictor, encoder {self.encoder.title}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RotationConfig:
    kind: ClassVar[str] = "rotation"


class RotationModel(EncoderModel):
    def __init__(self, config: RotationModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config, self.encoder = config, ViT(config.encoder, generator)
        self.head = nn.Linear(config.encoder.width, 4)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.head(self.encoder(images_BCHW).mean(dim=1))


class RotationObjective:
    def draw(self, batch_size: int, seed: int, step: int) -> dict[str, Tensor]:
        return {"turns": torch.randint(4, (batch_size,), generator=generator_for(seed, "augment", step))}

    def loss(self, model: nn.Module, images_BCHW: Tensor, labels_B: Tensor | None, draws: dict[str, Tensor]) -> Tensor:
        turned = [image.rot90(int(turns), (1, 2)) for image, turns in zip(images_BCHW, draws["turns"])]
        return F.cross_entropy(model(torch.stack(turned)), draws["turns"])


def rotation(facts) -> RunConfig:
    """Predict the rotation of an image."""
    return RunConfig(
        recipe="rotation",
        model=RotationModelConfig(),
        objective=RotationConfig(),
        data=DataConfig(crop_scale=None),
        optim=OptimConfig(base_lr=1e-2),
        steps=30,
        batch_size=32,
    )


@pytest.fixture
def rotations(monkeypatch):
    monkeypatch.setitem(MODEL_CONFIGS, "rotation-model", RotationModelConfig)
    monkeypatch.setitem(OBJECTIVE_CONFIGS, "rotation", RotationConfig)
    monkeypatch.setitem(MODELS, "rotation-model", Architecture(RotationModelConfig, RotationModel))
    monkeypatch.setitem(OBJECTIVES, ("rotation-model", "rotation"), lambda objective, model, steps: RotationObjective())
    monkeypatch.setitem(RECIPES, "rotation", rotation)


def test_an_objective_with_its_model_trains_resumes_and_is_evaluated(tmp_path, rotations):
    data, out = "shapes:200", tmp_path / "run"
    assert echoless.pretrain(data, out=out, recipe="rotation")
    losses = [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert losses[0] == pytest.approx(np.log(4), abs=0.1)
    assert echoless.pretrain(data, out=out, max_steps=32, resume=True)
    assert echoless.load(out)(torch.zeros(1, 3, 32, 32)).shape == (1, ENCODER.width)
    (metric,) = echoless.evaluate(out, train=data, metrics=("knn",), baselines=False)
    assert 0 <= metric.value <= 1
