"""Tiny runs by one process or several, started as torchrun starts them. Not a test itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from echoless.runs import load_checkpoint

TIMEOUT = 1800  # seconds; a machine may be busy

SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {folder!r})
import torch
from tiny import tiny_family, tiny_images, tiny_run
torch.set_num_threads(1)
images = tiny_images()
config = replace(tiny_family(images, {family!r}, steps={steps}), accumulate={accumulate}, batch_size=16)
config = replace(config, optim=replace(config.optim, base_lr=5e-3))
{patch}
from echoless.errors import EcholessError
try:
    complete = tiny_run(Path({out!r}), images, config, resume={resume}, **{runtime!r})
except EcholessError as error:
    print("REFUSED", type(error).__name__, error, flush=True)
    sys.exit(error.exit_code)
print("COMPLETE" if complete else "STOPPED", flush=True)
"""


# The same for several runs, one after the other: most of the time of a tiny run is the start of its processes.
SEVERAL = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {folder!r})
import torch
import echoless.training.loop as loop
from tiny import tiny_family, tiny_images, tiny_run
torch.set_num_threads(1)
images, step = tiny_images(), loop.take_step
for plan in {plans!r}:
    config = replace(tiny_family(images, plan["family"], steps=20), batch_size=16)
    config = replace(config, optim=replace(config.optim, base_lr=5e-3))
    config = eval("replace(config, " + plan["change"] + ")")
    def until(trainee, batch, stop):
        return step(trainee, batch, lambda: stop() or batch.step + 1 == plan["until"])
    loop.take_step = until
    tiny_run(Path(plan["out"]), images, config, resume=plan["resume"], checkpoint_every=10, **plan["runtime"])
"""


@dataclass(frozen=True)
class Plan:
    """A run of twenty steps. change: arguments of `replace`, for its config. until: a signal comes in this step."""

    out: Path
    family: str = "masked"
    change: str = ""
    resume: bool = False
    until: int | None = None
    runtime: dict[str, bool] = field(default_factory=dict)


def script(
    out: Path, accumulate: int = 1, patch: str = "", family: str = "masked", *, steps=20, resume=False, **runtime
) -> str:
    """What each process executes. `patch`: code that may change `config`, or what the processes do."""
    return SCRIPT.format(
        folder=str(Path(__file__).parent),
        out=str(out),
        accumulate=accumulate,
        patch=patch,
        family=family,
        steps=steps,
        resume=resume,
        runtime=runtime,
    )


def environment(out: Path) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "ECHOLESS_CACHE": str(out.parent / "cache")}


def start(out: Path, world: int, *arguments, **options) -> list[subprocess.Popen]:
    """The processes, running; arguments: those of `script`."""
    return start_code(script(out, *arguments, **options), world, out)


def start_code(code: str, world: int, out: Path) -> list[subprocess.Popen]:
    port, processes = free_port(), []
    for rank in range(world):
        env = environment(out)
        if world > 1:
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
            env |= {"LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes.append(
            subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
    return processes


def run(out: Path, world: int, *arguments, **options) -> list[subprocess.CompletedProcess]:
    """The processes, after they ended."""
    return ended(start(out, world, *arguments, **options))


def ended(processes: list[subprocess.Popen], timeout: float = TIMEOUT) -> list[subprocess.CompletedProcess]:
    try:
        outputs = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [
        subprocess.CompletedProcess(p.args, p.returncode, out.decode(), err.decode())
        for p, (out, err) in zip(processes, outputs)
    ]


def torchrun(out: Path, *arguments, max_restarts: int = 0, **options) -> subprocess.Popen:
    """Two processes under torchrun, which is returned running."""
    file = out.parent / f"{out.name}.py"
    file.write_text(script(out, *arguments, **options))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--max-restarts={max_restarts}"]
    command += ["--master-addr=127.0.0.1", f"--master-port={free_port()}", str(file)]
    return subprocess.Popen(command, env=environment(out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def complete(out: Path, world: int, *arguments, **options) -> None:
    """`run`, which must succeed."""
    for done in run(out, world, *arguments, **options):
        assert done.returncode == 0, done.stderr


def complete_each(world: int, plans: list[Plan]) -> None:
    """These runs, one after the other, by the same processes; all must succeed."""
    given = [asdict(plan) | {"out": str(plan.out)} for plan in plans]
    code = SEVERAL.format(folder=str(Path(__file__).parent), plans=given)
    for done in ended(start_code(code, world, plans[0].out), timeout=2 * TIMEOUT):
        assert done.returncode == 0, done.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def weights(out: Path, step: int = 20) -> torch.Tensor:
    """Weights and, where there are any, averaged weights, as one vector."""
    tensors = load_checkpoint(out / "checkpoints" / f"step-{step:08d}").tensors
    groups = [group for group in ("model", "ema") if group in tensors]
    return torch.cat([tensors[group][name].flatten().double() for group in groups for name in tensors[group]])
