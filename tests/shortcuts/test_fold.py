"""A faded encoder folded into a plain one computes the same function; the errors of every way of doing it are printed.

The plain network that the folded weights run in is written here with torch.nn.functional alone, so that it knows
nothing of shortcuts.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from echoless.config import ShortcutConfig, ViTConfig, mae_preset
from echoless.config.resnet import ResNetConfig
from echoless.models import MAE, ViT, patchify
from echoless.models.resnet import ResNet
from echoless.shortcuts import alphas, contributions, fold, reschedule, stream_factors, unfold


def random_vit(alpha_min: float, *, depth: int = 12, variant: str = "faded") -> ViT:
    """A ViT with non-zero branches: every weight drawn, biases included."""
    shortcuts = ShortcutConfig(variant=variant, alpha_min=alpha_min)
    config = ViTConfig(image_size=(16, 24), patch_size=4, width=96, depth=depth, heads=4, shortcuts=shortcuts)
    generator = torch.Generator().manual_seed(0)
    vit = ViT(config, generator)
    for name, parameter in vit.named_parameters():
        if not name.startswith("cls"):
            torch.nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.05, generator=generator)
    return vit


def plain_forward(vit: ViT, images: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    """An ordinary pre-norm ViT written out: x = x + f(LN(x)). `eps`: one for all norms, as others have it."""
    patches = F.linear(patchify(images, 4), vit.patch_embed.weight, vit.patch_embed.bias) + vit.positions
    x = torch.cat([vit.cls_token.expand(len(images), 1, -1), patches], dim=1)
    for block in vit.blocks:
        for norm, branch in ((block.norm1, block.attn), (block.norm2, block.mlp)):
            x = x + branch(F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, eps or norm.eps))
    return x


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


@torch.no_grad()
def test_folding_is_exact_in_float32_at_depth_12():
    vit = random_vit(0.6)
    images = torch.rand(8, 3, 16, 24, generator=torch.Generator().manual_seed(1))
    faded, folded = vit(images), fold(vit)
    errors = {
        "eps scaled per norm": relative(plain_forward(folded, images), faded),
        "one eps, unchanged": relative(plain_forward(folded, images, eps=1e-6), faded),
        "one eps, 1e-12": relative(plain_forward(folded, images, eps=1e-12), faded),
        "alphas dropped": relative(plain_forward(vit, images), faded),
    }
    grown = ViT.forward(fold_by_dividing(vit), images) * contributions(alphas(12, alpha_min=0.6))[0]
    errors["branches divided, one eps"] = relative(grown, faded)
    print("fold, depth 12, alpha_min 0.6, relative error:", {name: f"{e:.1e}" for name, e in errors.items()})
    assert errors["eps scaled per norm"] < 1e-5
    assert errors["one eps, 1e-12"] < 1e-4, "what an export to a library with a single eps gets"
    assert errors["alphas dropped"] > 0.1, "the check can fail"


def fold_by_dividing(vit: ViT) -> ViT:
    """The other choice: leave the embeddings, divide branch l by alpha_1 ... alpha_l. Late weights grow by 1 / A_L."""
    folded, product = fold(vit), 1.0
    for ours, branch in zip(vit.branches(), folded.branches()):
        product *= ours.shortcut.alpha
        branch.output.weight.copy_(ours.output.weight / product)
        branch.output.bias.copy_(ours.output.bias / product)
        branch.norm.eps = ours.norm.eps
    for ours, tensor in zip(vit.embeddings(), folded.embeddings()):
        tensor.copy_(ours)
    return folded


@torch.no_grad()
def test_folding_in_float64_is_exact_to_rounding():
    vit = random_vit(0.5).double()
    images = torch.rand(2, 3, 16, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert relative(plain_forward(fold(vit), images), vit(images)) < 1e-13


@torch.no_grad()
def test_folding_only_shrinks_weights_and_leaves_the_original_alone():
    vit = random_vit(0.6)
    before = {name: tensor.clone() for name, tensor in vit.state_dict().items()}
    folded = fold(vit)
    for mine, theirs in zip(vit.branches(), folded.branches()):
        assert theirs.output.weight.abs().max() <= mine.output.weight.abs().max()
        assert theirs.shortcut.alpha == 1.0
    assert all(torch.equal(tensor, before[name]) for name, tensor in vit.state_dict().items())


@torch.no_grad()
def test_unfold_is_the_inverse_of_fold():
    vit = random_vit(0.6).double()
    again = unfold(fold(vit), alphas(12, alpha_min=0.6))
    for name, tensor in vit.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor, rtol=1e-12, atol=0)
    assert [b.norm.eps for b in again.branches()] == pytest.approx([1e-6] * 24)


@torch.no_grad()
def test_weights_move_from_one_schedule_to_another_without_changing_the_function():
    vit = random_vit(0.9).double()
    images = torch.rand(2, 3, 16, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    moved = reschedule(vit, alphas(12, alpha_min=0.5))
    assert moved.shortcut_record["alphas"][-1] == 0.5
    assert relative(moved(images), vit(images)) < 1e-12


def test_folding_multiplies_by_the_contributions_of_equation_4():
    values = alphas(6, alpha_min=0.6)
    assert stream_factors(values, [1.0] * 12) == pytest.approx(contributions(values))


def test_what_cannot_be_folded_is_refused():
    with pytest.raises(ValueError, match="an alpha is 0; allowed: above 0"):
        fold(random_vit(0.0, depth=2))
    with pytest.raises(ValueError, match="a shortcut is Learnable; allowed: Faded"):
        fold(random_vit(1.0, depth=2, variant="learnable"))
    with pytest.raises(ValueError, match="3 alphas were given; allowed: 4"):
        unfold(random_vit(1.0, depth=2), [1.0, 1.0, 0.5])
    half = random_vit(1.0, depth=12).half()
    with pytest.raises(ValueError, match=r"float16.*convert the encoder to float32"):
        unfold(half, alphas(12, alpha_min=0.1))


def test_the_config_of_a_folded_encoder_names_the_shortcuts_that_are_there():
    vit = random_vit(0.6, depth=2)
    folded = fold(vit)
    assert (folded.config.shortcuts.variant, folded.config.shortcuts.alpha_min) == ("identity", 1.0)
    assert vit.config.shortcuts.alpha_min == 0.6
    assert ViT(folded.config).shortcut_record == folded.shortcut_record


def test_a_model_that_holds_an_encoder_is_refused_with_the_way_to_it():
    with pytest.raises(ValueError, match=r"MAE cannot be folded as a whole; allowed: \.encoder of it"):
        fold(MAE(mae_preset("tiny-16")))


def test_a_model_that_was_restored_without_its_alphas_is_refused_with_what_restores_them():
    """The slip after `from_pretrained`: the weights are there, and the model is plain. It was told of branches()."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    plain = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    sentence = (
        "^TransformerEncoder has no faded shortcuts, so it is plain already; if it was saved faded, restore it with "
        "fade_saved first$"
    )
    with pytest.raises(ValueError, match=sentence):
        fold(plain, example=torch.ones(1, 3, 8))


def test_a_network_of_other_faded_blocks_is_not_called_plain():
    with pytest.raises(ValueError, match=r"^ResNet cannot be folded; allowed: a pre-norm encoder with branches\(\)$"):
        fold(ResNet(ResNetConfig(shortcuts=ShortcutConfig(alpha_min=0.6))))
