"""What `auto` comes to in a run is what `choose_alpha_min` says for its depth and schedule; a number stays as it is.

Run alone: pytest tests/verbs/test_alpha.py
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from echoless.config import ShortcutConfig, mae_preset
from echoless.shortcuts import choose_alpha_min
from echoless.verbs.configuring import with_alpha


@pytest.mark.parametrize("choice", [{}, {"per": "block"}, {"fade": "mlp"}, {"schedule": "cosine"}])
def test_auto_becomes_the_number_of_this_depth_and_schedule(choice):
    model = mae_preset("base")
    for alpha_min, expected in (("auto", choose_alpha_min(12, **choice).alpha_min), (0.9, 0.9)):
        encoder = replace(model.encoder, shortcuts=ShortcutConfig(alpha_min=alpha_min, **choice))
        found = with_alpha(replace(model, encoder=encoder)).body.shortcuts
        assert found == ShortcutConfig(alpha_min=expected, **choice)
