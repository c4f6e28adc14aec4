"""R9: a loss, gradient or parameter that is not finite stops the run before the update, by name, with exit code 3."""

from __future__ import annotations

import pytest
import torch
from tiny import tiny_config, tiny_diffusion, tiny_images, tiny_run

import echoless.training.step as step_module
from echoless.cli.main import main
from echoless.errors import NonFiniteError
from echoless.runs import find_latest_valid, load_checkpoint

AT = 10  # the last checkpoint before it is of step 8


@pytest.fixture(scope="module")
def images():
    return tiny_images()


def poison(kind: str, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Break something at step AT, and remember the weights just before the verdict."""
    seen: dict = {}
    original = step_module._backward

    def backward(trainee, batch, draws, **weighted):
        if batch.step == AT and kind == "parameter":
            with torch.no_grad():
                trainee.model.encoder.blocks[2].mlp.fc1.weight[3, 4] = float("nan")
        seen["weights"] = {name: tensor.clone() for name, tensor in trainee.model.state_dict().items()}
        seen["trainee"], seen["ids"] = trainee, batch.ids_B
        loss = original(trainee, batch, draws, **weighted)
        if batch.step == AT and kind == "gradient":
            trainee.model.encoder.blocks[1].attn.qkv.weight.grad[0, 0] = float("inf")
        return loss * float("nan") if batch.step == AT and kind == "loss" else loss

    monkeypatch.setattr(step_module, "_backward", backward)
    return seen


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("loss", "loss nan"),
        ("gradient", "gradient of encoder.blocks.1.attn.qkv.weight"),
        ("parameter", "parameter encoder.blocks.2.mlp.fc1.weight"),
    ],
)
def test_no_update_is_applied(kind, named, images, tmp_path, monkeypatch):
    seen = poison(kind, monkeypatch)
    with pytest.raises(NonFiniteError, match="no update was applied") as caught:
        tiny_run(tmp_path / "run", images, tiny_config(images))
    assert f"step {AT + 1} is not finite" in str(caught.value) and named in str(caught.value)
    assert ", ".join(map(str, seen["ids"].tolist())) in str(caught.value), "the samples of the step are named"
    assert caught.value.exit_code == 3
    after = seen["trainee"].model.state_dict()
    # NaN differs from itself, so compare bits.
    assert all(torch.equal(after[k].view(torch.int32), v.view(torch.int32)) for k, v in seen["weights"].items())
    found = find_latest_valid(tmp_path / "run" / "checkpoints")
    tensors = load_checkpoint(found.path).tensors
    assert found.step == 8
    assert all(tensor.isfinite().all() for group in tensors.values() for tensor in group.values())
    print(f"R9 {kind}: updates applied=0, last checkpoint step {found.step} finite")


@pytest.mark.parametrize("kind", ["uvit", "sit"])
def test_no_update_is_applied_to_a_diffusion_model(kind, images, tmp_path, monkeypatch):
    seen = poison("loss", monkeypatch)
    with pytest.raises(NonFiniteError, match=f"step {AT + 1} is not finite .*no update was applied"):
        tiny_run(tmp_path / "run", images, tiny_diffusion(images, kind))
    after = seen["trainee"].model.state_dict()
    assert all(torch.equal(after[name], before) for name, before in seen["weights"].items())
    assert find_latest_valid(tmp_path / "run" / "checkpoints").step == 8
    print(f"R9 {kind}, loss: updates applied=0, last checkpoint step 8")


def test_the_command_line_exits_with_3(monkeypatch, tmp_path, capsys):
    def explode(*_, **__):
        raise NonFiniteError("step 1 is not finite")

    monkeypatch.setattr("echoless.training.launch.train", explode)
    code = main(["pretrain", "shapes:64", "--out", str(tmp_path / "run"), "--max-steps", "1", "--batch-size", "4"])
    assert code == 3
    assert "echoless pretrain: step 1 is not finite" in capsys.readouterr().err
