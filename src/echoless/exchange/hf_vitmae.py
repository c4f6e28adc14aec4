"""How do the weights of transformers' ViTMAE become those of a masked autoencoder of ours?"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from echoless.exchange.hf_names import block_state, current_names, hf_encoder
from echoless.exchange.names import Taken, count_blocks


def load_hf_vitmae(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of `ViTMAEForPreTraining`, in memory or on disk, as the state of an `MAE` with the `plain` decoder."""
    taken = Taken(current_names(state_dict), "the state of a ViTMAEForPreTraining")
    encoder = hf_encoder(taken, "vit.")
    ours = {f"encoder.{name}": tensor for name, tensor in encoder.items()}
    ours |= {f"decoder.{name}": tensor for name, tensor in _decoder(taken).items()}
    taken.refuse_the_rest()
    return ours


def _decoder(taken: Taken) -> dict[str, Tensor]:
    ours = {
        "mask_token": taken("decoder.mask_token").flatten(),
        "positions": taken("decoder.decoder_pos_embed")[0, 1:],
    }
    for theirs, name in (("embed", "embed"), ("norm", "norm"), ("pred", "to_pixels")):
        ours |= taken.pair(f"decoder.decoder_{theirs}", name)
    for index in range(count_blocks(taken.state, "decoder.decoder_layers")):
        ours |= block_state(taken, f"decoder.decoder_layers.{index}", f"blocks.{index}")
    return ours
