"""The public names: one table. Type checkers read it as it stands; `__init__.py` loads a name from it on first use."""

from echoless.config import mae_preset as mae_preset
from echoless.evaluation.frozen import load as load
from echoless.evaluation.jacobians import attention_diagonality as attention_diagonality
from echoless.evaluation.jacobians import jacobian_condition as jacobian_condition
from echoless.exchange import inspect_model as inspect_model
from echoless.exchange import load_hf_vitmae as load_hf_vitmae
from echoless.models import DINO as DINO
from echoless.models import MAE as MAE
from echoless.models import SiT as SiT
from echoless.models import UViT as UViT
from echoless.models import ViT as ViT
from echoless.objectives import masked_loss as masked_loss
from echoless.objectives import random_masking as random_masking
from echoless.randomness import generator_for as generator_for
from echoless.shortcuts import alpha_min_for as alpha_min_for
from echoless.shortcuts import alphas as alphas
from echoless.shortcuts import contributions as contributions
from echoless.shortcuts import effective_alpha as effective_alpha
from echoless.shortcuts import fade as fade
from echoless.shortcuts import fade_saved as fade_saved
from echoless.shortcuts import fold as fold
from echoless.shortcuts import init_skipless_ as init_skipless_
from echoless.shortcuts import residual as residual
from echoless.shortcuts import unfade as unfade
from echoless.shortcuts import unfold as unfold
from echoless.verbs.conditioning import conditioning as conditioning
from echoless.verbs.demo import demo as demo
from echoless.verbs.doctor import doctor as doctor
from echoless.verbs.embed import embed as embed
from echoless.verbs.evaluate import evaluate as evaluate
from echoless.verbs.export import export as export
from echoless.verbs.finetune import finetune as finetune
from echoless.verbs.import_ import import_ as import_
from echoless.verbs.inspect import inspect as inspect
from echoless.verbs.pretrain import pretrain as pretrain
from echoless.verbs.recipes import list_recipes as list_recipes
from echoless.verbs.report import report as report
from echoless.verbs.runs import list_runs as list_runs
from echoless.verbs.sample import sample as sample
from echoless.verbs.search import search as search
from echoless.verbs.serve import serve as serve
from echoless.verbs.sweep import sweep as sweep
from echoless.verbs.trial import trial as trial

__version__: str
