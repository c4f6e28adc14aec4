"""embed and evaluate under torchrun: two processes share the images, and everything is what one process makes of them.

Run alone: pytest tests/evaluation/test_several_processes.py -s -m "slow or not slow"
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


def start(arguments: list[str], folder: Path, world: int, before: str = "") -> list[subprocess.Popen]:
    """`echoless ARGUMENTS` as torchrun starts it."""
    code = (
        f"import sys, torch; torch.set_num_threads(1)\n{before}\nfrom echoless.cli.main import main\nsys.exit(main())"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(world):
        env = os.environ | {"OMP_NUM_THREADS": "1", "ECHOLESS_CACHE": str(folder / "cache")}
        if world > 1:
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        words = [sys.executable, "-c", code, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(words, env=env, cwd=folder, text=True, **pipes))
    return processes


def finish(processes: list[subprocess.Popen]) -> list[tuple[int, str, str]]:
    outputs = [process.communicate(timeout=1000) for process in processes]
    return [(process.returncode, *output) for process, output in zip(processes, outputs)]


def echoless(arguments: str, folder: Path, world: int, before: str = "") -> list[tuple[int, str, str]]:
    done = finish(start(arguments.split(), folder, world, before))
    assert all(code == 0 for code, _, _ in done), done
    return done


def files(path: Path) -> dict[str, bytes]:
    """The content of a folder by name, or of one file."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {each.name: each.read_bytes() for each in path.iterdir()}


SMALL_PIECES = "import echoless.evaluation.embed as e; e.CHUNKS_PER_PIECE = 1"


@pytest.mark.parametrize("options", ["", "--part-size 40K --map pca", "--tokens --dtype fp16 --part-size 400K"])
def test_an_embedding_by_two_processes_is_bitwise_that_of_one(run, tmp_path, options):
    for world in (1, 2):
        command = f"embed {run} shapes:500@test --out {world}.parquet --workers {world} {options}"
        first, *others = echoless(command, tmp_path, world, SMALL_PIECES)
        assert "500 " in first[1] and all(not text and not shown for _, text, shown in others)
    assert files(tmp_path / "1.parquet") == files(tmp_path / "2.parquet")
    print(f"R20 embed {options}: 2 processes against 1, bitwise equal, {len(files(tmp_path / '1.parquet'))} file(s)")


def test_an_embedding_killed_at_random_times_and_continued_by_another_number_of_processes(run, tmp_path):
    """SIGKILL to all processes, again and again; one process, then two, then one, ..."""
    slow = f"{SMALL_PIECES}; import time; w = e._write_piece; e._write_piece = lambda *a: (w(*a), time.sleep(0.2))"
    command = f"embed {run} shapes:1200@test --out f.parquet --part-size 100K"
    kills, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL and kills < 30:
        processes = start(command.split(), tmp_path, 1 + kills % 2, slow)
        before = len(list(tmp_path.glob(".f.parquet.parts-*/**/*.parquet")))
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and processes[0].poll() is None:
            if len(list(tmp_path.glob(".f.parquet.parts-*/**/*.parquet"))) >= before + 5:
                break
            time.sleep(0.01)
        for process in processes:
            process.kill()
        code, kills = finish(processes)[0][0], kills + 1
    if code != 0:
        echoless(command, tmp_path, 2, SMALL_PIECES)
    echoless(command.replace("f.parquet", "whole.parquet"), tmp_path, 1, SMALL_PIECES)
    assert files(tmp_path / "f.parquet") == files(tmp_path / "whole.parquet")
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    print(f"R20 embed: kills={kills}, continued by one and by two processes, bitwise equal")
    assert kills > 3


def results(run: Path) -> list[dict]:
    return json.loads((run / "results.json").read_text())


def test_an_evaluation_by_two_processes_has_the_numbers_of_one(run, tmp_path):
    """kNN, probes, ranks and the probe of He et al. 2022, whose crops they compute in turn; also without a cache."""
    import shutil

    numbers = {}
    for name, world, options in (("one", 1, ""), ("two", 2, ""), ("uncached", 2, "--no-cache")):
        shutil.copytree(run, tmp_path / name, ignore=shutil.ignore_patterns("features", "results.json"))
        command = (
            f"evaluate {name} --train shapes:200 --test shapes:100@test --no-baselines --probe quick mae {options}"
        )
        short = "import echoless.evaluation.classify as c; c.mae_epochs = lambda depth: 1"
        first, *others = echoless(command, tmp_path, world, short)
        assert "linear" in first[1] and not any(text or shown for _, text, shown in others)
        numbers[name] = results(tmp_path / name)
    assert numbers["one"] == numbers["two"] == numbers["uncached"] and len(numbers["one"]) > 4
    print(f"evaluate: 2 processes against 1: all {len(numbers['one'])} numbers equal")


def test_a_refusal_is_one_sentence_of_the_first_process_and_ends_both(run, tmp_path):
    done = finish(start(f"evaluate {run} --train shapes:30 --layers nowhere".split(), tmp_path, 2))
    assert [code for code, _, _ in done] == [2, 2], done
    assert "layers is 'nowhere'; allowed: last, all" in done[0][2]
    (tmp_path / "f.parquet").touch()
    done = finish(start(f"embed {run} shapes:30 --out f.parquet".split(), tmp_path, 2))
    assert [code for code, _, _ in done] == [2, 2] and "exists; give --overwrite" in done[0][2], done
