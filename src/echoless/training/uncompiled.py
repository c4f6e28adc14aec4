"""How does training start without torch's compiler?

torch keeps some methods of its optimisers out of compiled graphs, and imports the compiler to do so: more than a second
of CPU in every process that trains. Here it is the network that may be compiled, never the optimiser.
"""

from __future__ import annotations

from inspect import unwrap

from torch import no_grad
from torch.optim import AdamW, Optimizer


class Uncompiled(Optimizer):
    """An optimiser whose methods are called as they are written."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)


class UncompiledAdamW(Uncompiled, AdamW):
    """torch's AdamW."""

    step = no_grad()(unwrap(AdamW.step))
