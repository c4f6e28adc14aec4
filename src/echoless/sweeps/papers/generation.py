"""What did the paper publish about diffusion models? Table 4 and Figure 8 of arXiv:2404.10947, for U-ViT."""

from __future__ import annotations

from dataclasses import replace

from echoless.sweeps.commands import Inputs
from echoless.sweeps.experiment import Experiment, Published
from echoless.sweeps.papers.diffusion import SIZES, diffusion, trial, with_test
from echoless.sweeps.papers.scale import Build, Scale

# Linear probing on CIFAR-100, unconditional.
_PROBED = {1.0: 0.6247, 0.8: 0.6358, 0.7: 0.6686, 0.6: 0.6463}
_UNCONDITIONAL, _CONDITIONAL = "unconditional", "class-conditional"


def table4(inputs: Inputs, scale: Scale) -> Experiment:
    """Features and samples of U-ViT over alpha_min, without and with classes."""
    size, inputs = SIZES[scale.name], with_test(inputs)
    trials = [
        trial(inputs, size, size.recipes[0], alpha, seed, conditional)
        for seed in range(inputs.seeds)
        for conditional in (False, True)
        for alpha in _PROBED
    ]
    figures = [
        Published(metric="linear", value=value, settings={"task": _UNCONDITIONAL, "alpha_min": alpha})
        for alpha, value in _PROBED.items()
    ]
    notes = (
        "The paper's probe is of CIFAR-100 without classes; on ImageNet-100 it has 72.8, 74.5, 76.1 and 75.8 % for "
        "alpha_min 1, 0.8, 0.7, 0.6.",
        "Its FID, through Inception and so not comparable with the distances here, for the same four: CIFAR-100 14.34, "
        "11.65, 8.99, 11.71; ImageNet-100 44.40, 40.96, 41.17, 43.51 without and 6.93, 5.75, 5.11, 4.98 with classes.",
    )
    base = diffusion(inputs, scale)
    title = f"Table 4, arXiv:2404.10947, at scale {scale.name} on {inputs.data}"
    return replace(
        base, name="table4", title=title, trials=tuple(trials), published=tuple(figures), notes=base.notes + notes
    )


def fig8(inputs: Inputs, scale: Scale) -> Experiment:
    """Samples of U-ViT, plain and faded to 0.6, side by side."""
    table = table4(inputs, scale)
    shown = [t for t in table.trials if t.settings["task"] == _CONDITIONAL and t.settings["alpha_min"] in (1.0, 0.6)]
    notes = ("Samples are OUT/NAME/samples/grid.png. The paper shows pictures and calls those at 0.6 the better ones.",)
    title = f"Figure 8, arXiv:2404.10947, at scale {scale.name} on {inputs.data}"
    return replace(table, name="fig8", title=title, trials=tuple(shown), published=(), notes=notes)


GENERATION: dict[str, Build] = {"table4": table4, "fig8": fig8}
