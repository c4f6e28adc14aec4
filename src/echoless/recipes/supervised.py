"""Which recipes train classifiers on labels? Each docstring gives the command, the cost and the result.

`--variant none --init-scheme skipless` is the residual-free ViT of arXiv:2510.00345, `--alpha-min 0.7` the faded
network of arXiv:2404.10947, `--variant identity` the residual baseline: one recipe, so that only the shortcuts differ.
"""

from __future__ import annotations

from echoless.config import DataConfig, OptimConfig, RunConfig, ShortcutConfig, ViTConfig
from echoless.config.facts import DataFacts, Recipe, natural_size, steps_for
from echoless.config.resnet import ResNetConfig
from echoless.config.supervised import ClassifierConfig, SupervisedConfig

UNLABELLED = 10  # classes of a config that is made before the data is known
PUBLISHED = DataConfig(crop_scale=(0.08, 1.0), cache_side="original")  # the usual crops of supervised training
GENTLE = DataConfig(crop_scale=(0.6, 1.0))  # of a small image the usual crop may leave nothing that tells the class
PLAIN = SupervisedConfig(label_smoothing=0.0, mixup=0.0, cutmix=0.0, erase=0.0, drop_path=0.0)


def _vit(facts: DataFacts, width: int, depth: int, heads: int) -> ClassifierConfig:
    """No zero-initialised branches: a network without shortcuts could not have them, and it is the one compared."""
    image_size, patch = natural_size(facts)
    encoder = ViTConfig(
        image_size=image_size,
        patch_size=patch,
        channels=facts.channels,
        width=width,
        depth=depth,
        heads=heads,
        zero_init=False,
        shortcuts=ShortcutConfig(alpha_min=1.0),
    )
    return ClassifierConfig(encoder=encoder, classes=facts.classes or UNLABELLED)


def vit_supervised(facts: DataFacts) -> RunConfig:
    """ViT-B on labels for 300 epochs with the settings that are reported for arXiv:2510.00345.

    echoless pretrain DATA --out RUN --recipe vit-supervised --test HELD_OUT --variant none --init-scheme skipless
    Cost: 300 epochs on several GPUs. On ImageNet-1k the paper reports 80.3 % with shortcuts and AdamW, 61.4 % without,
    78.1 % without and with the skipless initialisation, 80.8 % with SOAP too; not reproduced here.
    """
    return RunConfig(
        recipe="vit-supervised",
        model=_vit(facts, width=768, depth=12, heads=12),
        objective=SupervisedConfig(
            label_smoothing=0.1,
            mixup=0.8,
            cutmix=1.0,
            erase=0.25,
            rand_augment=9.0 if facts.channels in (1, 3) and facts.bits == 8 else None,
            drop_path=0.0,
        ),
        optim=OptimConfig(base_lr=2.5e-4, betas=(0.9, 0.95), weight_decay=0.3, warmup=5 / 300, min_lr=1e-5, clip=1.0),
        data=PUBLISHED,
        batch_size=1024,
        steps=steps_for(300, facts.count, 1024),
    )


def vit_tiny_supervised(facts: DataFacts) -> RunConfig:
    """A ViT of 64 x 12 with one head on labels, for two CPU cores, without mixup, label smoothing or erasing.

    echoless pretrain shapes --out RUN --recipe vit-tiny-supervised --test shapes:2000@test
    Observed: 98.9 % [98.4, 99.3] on 2,000 test images after 320,000 training images (shapes:100000), half an hour on
    a busy core, with --optimizer soap --base-lr 4e-3 --batch-size 128 --max-steps 2500 --patch-size 8 --width 128
    --depth 6 --crop-scale 0.8 1. AdamW needed about seven times as many images to reach 41 %.
    """
    return RunConfig(
        recipe="vit-tiny-supervised",
        model=_vit(facts, width=64, depth=12, heads=1),
        objective=PLAIN,
        data=GENTLE,
        optim=OptimConfig(base_lr=2e-3, betas=(0.9, 0.95), weight_decay=0.05, warmup=0.1, clip=1.0),
        batch_size=64,
        steps=steps_for(10, facts.count, 64),
    )


def _resnet(facts: DataFacts, width: int) -> ClassifierConfig:
    image_size, _ = natural_size(facts)
    encoder = ResNetConfig(
        image_size=image_size,
        channels=facts.channels,
        width=width,
        stem="cifar" if facts.small else "imagenet",
    )
    return ClassifierConfig(encoder=encoder, classes=facts.classes or UNLABELLED)


def resnet_supervised(facts: DataFacts) -> RunConfig:
    """ResNet-18 on labels; --third-stage 10 makes it 16 blocks deep, --alpha-min fades its shortcuts.

    echoless pretrain DATA --out RUN --recipe resnet-supervised --test HELD_OUT --third-stage 6 --alpha-min 0.7
    Cost: 90 epochs on a GPU. On a small subset of ImageNet the paper reports 94.4 % with alpha_min 0.7 and 93.6 % with
    1.0 for ResNet-18; not reproduced here.
    """
    return RunConfig(
        recipe="resnet-supervised",
        model=_resnet(facts, width=64),
        objective=SupervisedConfig(label_smoothing=0.1, mixup=0.0, cutmix=0.0, erase=0.0, drop_path=0.0),
        optim=OptimConfig(base_lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05, warmup=0.05, clip=None),
        data=PUBLISHED,
        batch_size=256,
        steps=steps_for(90, facts.count, 256),
    )


def resnet_tiny_supervised(facts: DataFacts) -> RunConfig:
    """The same network with an eighth of its channels, for two CPU cores.

    echoless pretrain shapes --out RUN --recipe resnet-tiny-supervised --test shapes:2000@test --alpha-min 0.7
    """
    return RunConfig(
        recipe="resnet-tiny-supervised",
        model=_resnet(facts, width=8),
        objective=PLAIN,
        data=GENTLE,
        optim=OptimConfig(base_lr=8e-3, betas=(0.9, 0.999), weight_decay=0.05, warmup=0.1, clip=None),
        batch_size=64,
        steps=steps_for(5, facts.count, 64),
    )


SUPERVISED: dict[str, Recipe] = {
    "vit-supervised": vit_supervised,
    "vit-tiny-supervised": vit_tiny_supervised,
    "resnet-supervised": resnet_supervised,
    "resnet-tiny-supervised": resnet_tiny_supervised,
}
