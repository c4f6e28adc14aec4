"""Verbs that compile nothing do not import torch's compiler, which takes longer than torch itself."""

from __future__ import annotations

import subprocess
import sys

COMPILER = ("torch._dynamo", "sympy")

QUICK = "--max-steps 2 --batch-size 8"
VERBS = (
    f"pretrain shapes:40 --out run --recipe demo --ema 0.9 {QUICK}",
    "pretrain shapes:40 --out run --resume",
    f"pretrain shapes:40 --out sit --recipe sit-tiny --depth 2 --optimizer adamw {QUICK}",
    "evaluate run --train shapes:60 --metrics knn linear rank",
    "embed run shapes:40 --out vectors.npy",
    "report run --out page.html",
    f"finetune run --train shapes:40 --test shapes:20@test --out tuned {QUICK}",
    "sample sit --out samples --n 2 --steps 1",
)

WATCHED = """
import sys
from echoless.cli.main import main
for words in sys.argv[1:]:
    code = main(words.split())
    assert code == 0, (words, code)
    imported = [name for name in {names} if name in sys.modules]
    assert not imported, (words, imported)
"""


def test_no_verb_imports_the_compiler(tmp_path):
    code = WATCHED.format(names=COMPILER)
    done = subprocess.run([sys.executable, "-c", code, *VERBS], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
