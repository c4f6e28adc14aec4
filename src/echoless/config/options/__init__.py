"""Which arguments does each verb take? One frozen dataclass per verb: the only list of its arguments.

Positional fields come first; the string under a field is its help text. None means not given.
"""

from echoless.config.options.command import as_command, same_sets_command
from echoless.config.options.completion import CompletionOptions
from echoless.config.options.conditioning import ConditioningOptions
from echoless.config.options.demo import DemoOptions
from echoless.config.options.doctor import DoctorOptions
from echoless.config.options.embed import EmbedOptions
from echoless.config.options.evaluate import EvaluateOptions
from echoless.config.options.export import ExportOptions
from echoless.config.options.finetune import FinetuneOptions
from echoless.config.options.import_ import ImportOptions
from echoless.config.options.inspect import InspectOptions
from echoless.config.options.pretrain import PretrainOptions
from echoless.config.options.recipes import RecipesOptions
from echoless.config.options.report import ReportOptions
from echoless.config.options.runs import RunsOptions
from echoless.config.options.sample import SampleOptions
from echoless.config.options.search import SearchOptions
from echoless.config.options.serve import ServeOptions
from echoless.config.options.sweep import SweepOptions
from echoless.config.options.trial import TrialOptions

__all__ = [
    "CompletionOptions",
    "ConditioningOptions",
    "DemoOptions",
    "DoctorOptions",
    "EmbedOptions",
    "EvaluateOptions",
    "ExportOptions",
    "FinetuneOptions",
    "ImportOptions",
    "InspectOptions",
    "PretrainOptions",
    "RecipesOptions",
    "ReportOptions",
    "RunsOptions",
    "SampleOptions",
    "SearchOptions",
    "ServeOptions",
    "SweepOptions",
    "TrialOptions",
    "as_command",
    "same_sets_command",
]
