"""What does `evaluate` do? Refuse what cannot be measured, then measure.

The second half, which needs torch, is in `evaluating.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from echoless.config.evaluated import Metrics
from echoless.config.options import EvaluateOptions
from echoless.verbs.early import require_data, require_encoder, require_labels, require_test_of
from echoless.verbs.signature import signature_of


@signature_of(EvaluateOptions)
def evaluate(options: EvaluateOptions, say: Callable[[str], None] = print) -> Metrics:
    """Returns every number with its protocol; they are also added to RUN/results.json.

    Printed, they are a table with what it says in plain words and the next step; `closing` has the sentences.
    Under torchrun the first process returns them, and the others none.
    """
    require_test_of(options.test_labels, options.test)
    require_test_of(options.test_masks, options.test, name="test_masks")
    require_encoder(options.run)
    require_data(options.train, options.test)
    require_labels(options.labels, options.test_labels)

    from echoless.verbs.evaluating import run_evaluation

    return run_evaluation(options, say)
