"""What does `finetune` do? Settle what is asked, refuse what cannot be, then train the whole network on labels.

The second half, which needs torch, is in `finetuning.py`.
"""

from __future__ import annotations

from echoless.config.checks import require_length
from echoless.config.metrics import Metric
from echoless.config.options import FinetuneOptions
from echoless.config.options.fields import filled
from echoless.verbs.early import require_data, require_encoder, require_labels, require_startable
from echoless.verbs.record import Record, read_record, require_found, require_same_start, require_verb, with_remembered
from echoless.verbs.signature import signature_of


@signature_of(FinetuneOptions)
def finetune(options: FinetuneOptions) -> Metric | None:
    """Returns the accuracy on --test with its interval; None where SIGTERM stopped the run, with all of its work saved.

    Ctrl-C saves it too, and then raises KeyboardInterrupt.
    """
    require_startable(options.out, resume=options.resume, overwrite=options.overwrite)
    require_data(options.train, options.test)
    require_labels(options.labels, options.test_labels)
    require_encoder(options.run, others=", or a transformers folder")
    require_length(options.epochs, options.max_steps)
    record = read_record(options)
    require_verb("finetune", options, record)
    require_same_start("run", options.run, record)
    asked, options = options, _completed(options, record)
    require_found(asked, options, record)

    from echoless.verbs.finetuning import run_finetuning

    return run_finetuning(options, record)


def completed(options: FinetuneOptions) -> FinetuneOptions:
    """With what is not given and was recorded by the run that is resumed or repeated."""
    return _completed(options, read_record(options))


def _completed(options: FinetuneOptions, record: Record | None) -> FinetuneOptions:
    if record is None:
        return options
    data = record.config.data
    return filled(with_remembered(options, record), {"labels": data.labels, "classes": data.classes})
