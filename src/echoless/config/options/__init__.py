"""What may be asked of a verb? One frozen value per verb; the command line and the Python functions share them."""

from echoless.config.options.command import as_command
from echoless.config.options.conditioning import ConditioningOptions
from echoless.config.options.embed import EmbedOptions
from echoless.config.options.evaluate import EvaluateOptions
from echoless.config.options.finetune import FinetuneOptions
from echoless.config.options.import_ import ImportOptions
from echoless.config.options.inspect import InspectOptions
from echoless.config.options.pretrain import PretrainOptions
from echoless.config.options.sample import SampleOptions
from echoless.config.options.sweep import SweepOptions

__all__ = [
    "ConditioningOptions",
    "EmbedOptions",
    "EvaluateOptions",
    "FinetuneOptions",
    "ImportOptions",
    "InspectOptions",
    "PretrainOptions",
    "SampleOptions",
    "SweepOptions",
    "as_command",
]
