"""What has to be computed of a network whose branches are still zero? Its shortcuts, and no branch.

With zero initialisation (section 3.2, arXiv:2404.10947) every untrained encoder is such a network, and a table of
`evaluate` has one as a baseline. (Legend: models/layers.py.)
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from echoless.models.layers import Block, Note, ignore
from echoless.models.places import NOWHERE, Places
from echoless.models.vit import ViT


class SilentBlock(nn.Module):
    """A block whose two branches are zero whatever the tokens are. It has no keys to note."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.attn_shortcut, self.mlp_shortcut = block.attn_shortcut, block.mlp_shortcut

    def forward(
        self,
        x_BTD: Tensor,
        note: Note = ignore,
        name: str = "block",
        drop_path_B2: Tensor | None = None,
        places: Places = NOWHERE,
    ) -> Tensor:
        branch = torch.zeros_like(x_BTD)
        for part, shortcut in (("attn", self.attn_shortcut), ("mlp", self.mlp_shortcut)):
            note(f"{name}/{part}", branch)
            x_BTD = shortcut(x_BTD, branch)
            note(f"{name}/+{part}", x_BTD)
        return x_BTD


def without_silent_branches(network: ViT) -> ViT:
    """The same network for inference, bit for bit: what is multiplied by zero is not computed.

    Shares all weights with the network; is the network itself if no block is silent. It does not give the keys of
    silent blocks.
    """
    if not any(map(_is_silent, network.blocks)):
        return network
    lighter = copy.copy(network)
    blocks = nn.ModuleList(SilentBlock(block) if _is_silent(block) else block for block in network.blocks)  # type: ignore[arg-type]
    lighter._modules = {**network._modules, "blocks": blocks}
    return lighter


def _is_silent(block: nn.Module) -> bool:
    if not isinstance(block, Block):
        return False
    last = (block.attn.proj, block.mlp.fc2)
    return not any(bool(part.any()) for layer in last for part in (layer.weight, layer.bias) if part is not None)
