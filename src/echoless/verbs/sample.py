"""What does `sample` do? See `evaluation/draw.py`."""

from __future__ import annotations

from echoless.config.options import SampleOptions
from echoless.verbs.early import require_encoder
from echoless.verbs.signature import signature_of


@signature_of(SampleOptions)
def sample(options: SampleOptions) -> int:
    """Returns how many images are there: 0 where a signal stopped it."""
    require_encoder(options.run, others="")

    from echoless.evaluation.draw import draw_into

    return draw_into(options)
