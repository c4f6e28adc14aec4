"""When does fading become unstable, and what helps? Section 3.2 and Section 4.2 of arXiv:2404.10947."""

from __future__ import annotations

from dataclasses import replace

from echoless.sweeps.commands import Inputs, evaluate_command
from echoless.sweeps.experiment import Experiment, Quantity
from echoless.sweeps.papers.readings import LOSS, final_loss, norm_growth, stability
from echoless.sweeps.papers.scale import KNN, LINEAR, PUBLISHED_DEPTHS, RANK, Build, Scale, pretraining_trials, vit

NORMS = tuple(Quantity(metric=metric) for metric in ("norm_first", "norm_largest", "norm_last"))
COMPLETED, SETBACK, GRADIENT = (Quantity(metric=metric) for metric in ("completed", "setback", "gradient_peak"))


def zero_init(inputs: Inputs, scale: Scale) -> Experiment:
    """Growth of feature norms with and without branches that start at zero."""
    cells = [
        vit(
            scale,
            {"alpha_min": alpha_min, "zero_init": "yes" if zero else "no"},
            alpha_min=alpha_min,
            zero_init=zero,
            log_every=scale.log_every,
        )
        for alpha_min in (1.0, 0.8, 0.7, 0.6, 0.5)
        for zero in (True, False)
    ]
    return Experiment(
        name="zero-init",
        title=f"Growth of feature norms, arXiv:2404.10947 section 3.2, at scale {scale.name} on {inputs.data}",
        trials=pretraining_trials(inputs, scale, cells, [evaluate_command(inputs, ("linear",))], may_diverge=True),
        quantities=(*NORMS, GRADIENT, LOSS, LINEAR),
        contrast=("zero_init",),
        readings=(norm_growth, stability, final_loss),
        notes=(
            "Norms are means over tokens of the last block's output. The paper gives no figures: it reports rapid "
            "growth at the beginning of training for alpha_min of 0.7 and less, and that starting at zero stops it.",
        ),
    )


def unstable(inputs: Inputs, scale: Scale) -> Experiment:
    """Training at alpha_min of 0.4 and less, at the published depth: half of it would need alphas near zero."""
    scale = replace(scale, depths=PUBLISHED_DEPTHS)
    cells = [
        vit(scale, {"alpha_min": alpha_min}, alpha_min=alpha_min, log_every=scale.log_every)
        for alpha_min in (0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
    ]
    return Experiment(
        name="unstable",
        title=f"Stability at small alpha_min, arXiv:2404.10947 section 4.2, at scale {scale.name} on {inputs.data}",
        trials=pretraining_trials(
            inputs, scale, cells, [evaluate_command(inputs, ("knn", "linear", "rank"))], may_diverge=True
        ),
        quantities=(COMPLETED, SETBACK, GRADIENT, LOSS, LINEAR, KNN, RANK),
        readings=(stability, final_loss),
        notes=(
            "A run that stops because a value is no longer finite is completed in part, and is not measured. The paper "
            "gives no figures: it reports that training becomes unstable at alpha_min of 0.4 and less.",
        ),
    )


STABILITY: dict[str, Build] = {"zero-init": zero_init, "unstable": unstable}
