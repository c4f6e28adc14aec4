"""Proves that probes read what the original code reads: the same file in, the same tensor out. Run: make test-tv

The original: main_linprobe.py and models_vit.py of facebookresearch/mae, with torchvision's transforms of PIL images
and timm's ViT. Its probe reads the class token after the norm; the others read the mean of all tokens.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

torchvision = pytest.importorskip("torchvision", exc_type=ImportError)
timm_vit = pytest.importorskip("timm.models.vision_transformer", exc_type=ImportError)
from torchvision import transforms  # noqa: E402

from echoless.config.normalisation import IMAGENET_MEAN, IMAGENET_STD  # noqa: E402
from echoless.config.options import EvaluateOptions  # noqa: E402
from echoless.data import open_images  # noqa: E402
from echoless.evaluation.context import Evaluation, FeatureSource  # noqa: E402
from echoless.evaluation.frozen import load  # noqa: E402
from echoless.exchange import import_checkpoint  # noqa: E402
from echoless.models import sincos_positions  # noqa: E402

SHAPES = ((375, 500), (500, 333), (256, 300), (600, 601))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Smooth pictures with edges, as JPEG files in two classes."""
    rng = np.random.default_rng(0)
    for number, (height, width) in enumerate(SHAPES):
        coarse = Image.fromarray(rng.integers(0, 256, (8, 10, 3), dtype=np.uint8))
        levels = np.array(coarse.resize((width, height), Image.BICUBIC))
        levels[height // 3 : height // 2, width // 4 : width // 2] = 250
        file = io.BytesIO()
        Image.fromarray(levels).save(file, "JPEG", quality=90)
        place = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.getvalue())
    return tmp_path / "photos"


def timms_vit() -> torch.nn.Module:
    """Of the size of a toy, at the input and with the positions of the real ones."""
    torch.manual_seed(0)
    model = timm_vit.VisionTransformer(img_size=224, patch_size=16, embed_dim=48, depth=3, num_heads=3, num_classes=0)
    table = sincos_positions((14, 14), 48)
    model.pos_embed.data[0] = torch.cat([torch.zeros(1, 48), table])
    for parameter in (parameter for name, parameter in model.named_parameters() if name != "pos_embed"):
        parameter.data += 0.05 * torch.randn(parameter.shape)
    return model.eval()


def by_their_transforms(photos: Path) -> torch.Tensor:
    """transform_val of main_linprobe.py, which works on PIL images; 3 is bicubic."""
    transform = transforms.Compose(
        [
            transforms.Resize(256, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(mean=IMAGENET_MEAN, std=IMAGENET_STD),
        ]
    )
    dataset = torchvision.datasets.ImageFolder(str(photos), transform)
    return torch.stack([image for image, _ in dataset])


@pytest.mark.parametrize("probe", ["mae", "imagenet100", "quick"])
def test_a_probe_reads_the_tensor_of_the_original_code(photos, tmp_path, probe):
    model = timms_vit()
    torch.save({"model": model.state_dict()}, tmp_path / "vit.pth")
    import_checkpoint(tmp_path / "vit.pth", tmp_path / "imported", heads=3)
    encoder = load(tmp_path / "imported")
    images = open_images(photos, reduction=encoder.reduction, cache="off")
    options = EvaluateOptions("imported", probe=(probe,))
    source = FeatureSource(Evaluation(encoder, images, None, options, None, None, print), "trained", encoder)
    view = source.probe_view(probe)
    ours = torch.from_numpy(np.array(source.train[view].features_ND))
    with torch.no_grad():
        normed = model.forward_features(by_their_transforms(photos))
    theirs = normed[:, 0] if probe == "mae" else normed.mean(dim=1)
    difference = float((ours - theirs).norm() / (theirs - theirs.mean(dim=0)).norm())
    print(f"{probe}: layer {view.layer}, {view.pooling}: {difference:.1e} of what images differ by")
    assert (view.layer, view.pooling) == ("norm", "cls" if probe == "mae" else "mean")
    assert difference < 5e-3  # the filters of PIL and of torch differ by up to two grey levels
