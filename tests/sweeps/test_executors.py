"""The same trials on this machine, on Slurm and on Ray, with one of them killed on each: the same numbers, one table.

Slurm itself is played by four small programs, between which submitit is the real one. Ray is the real one, with two
nodes on 127.0.0.1.

    pytest -s tests/sweeps/test_executors.py -m "slow or not slow"
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from echoless.config.options import SweepOptions
from echoless.errors import ConfigError, RunError
from echoless.runtime import StopRequest
from echoless.storage import write_json
from echoless.sweeps.dispatch import run_trials
from echoless.sweeps.executors import on_local, open_executor, settings_of
from echoless.sweeps.executors.on_local import LocalExecutor, LocalPlace, places, side_by_side, visible_gpus
from echoless.sweeps.executors.on_ray import RayExecutor
from echoless.sweeps.executors.on_slurm import SlurmExecutor
from echoless.sweeps.experiment import Trial
from echoless.sweeps.ledger import Ledger, is_done
from echoless.sweeps.starting import Starting


def needs(module):
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"NOT RUN: {module} is not installed, so nothing was run on it")


def wait_for(condition, seconds=400):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)
    return found


# --- this machine ---


def test_every_job_has_its_own_gpu_and_its_own_cores():
    cores = list(range(8))
    assert places(1, ["0", "1"], cores) == [LocalPlace()]
    assert [place.gpus for place in places(2, list("0123"), cores)] == [("0", "1"), ("2", "3")]
    assert [place.gpus for place in places(4, ["GPU-a", "GPU-b"], cores)] == [("GPU-a",), ("GPU-b",)] * 2
    assert [place.cores for place in places(2, [], cores)] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [place.cores for place in places(3, [], [4, 5])] == [(4,), (5,), (4,)]


def test_a_place_is_told_by_the_environment(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert LocalPlace(("2", "3"), (0, 1, 2)).environment == {"CUDA_VISIBLE_DEVICES": "2,3", "OMP_NUM_THREADS": "3"}
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert LocalPlace(None, (0,)).environment == {}


def test_the_gpus_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus("auto") == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 7")
    assert visible_gpus("cuda") == ["5", "7"]
    assert visible_gpus("cpu") == visible_gpus("cuda:1") == []


@pytest.mark.parametrize(
    ("trials", "device", "gpu", "gb", "threads", "expected"),
    [
        (9, "auto", False, 64, "", 4),  # one for each of four cores
        (9, "auto", False, 64, "2", 2),  # the user's threads for each
        (9, "auto", False, 64, "8", 1),
        (3, "cpu", True, 64, "1", 3),  # no more than there are
        (9, "cpu", False, 7, "1", 2),  # no more than the memory has room for
        (9, "cpu", False, None, "1", 4),  # where the system does not tell
        (9, "auto", True, 64, "1", 1),
        (9, "cuda:1", True, 64, "1", 1),
    ],
)
def test_on_a_cpu_runs_train_side_by_side_unless_told_otherwise(
    monkeypatch, trials, device, gpu, gb, threads, expected
):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.setattr(on_local, "usable_cores", lambda: 4)
    monkeypatch.setattr(on_local, "memory_bytes", lambda: (gb and gb * 2**30, None))
    assert side_by_side(trials, device) == expected


def test_a_launcher_may_use_the_whole_machine_for_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(on_local, "usable_cores", lambda: 4)
    slots = [
        open_executor(SweepOptions("DATA", out="OUT", device="cpu", **given), tmp_path, 9).slots
        for given in ({"launcher": "torchrun"}, {"launcher": "torchrun", "jobs": 2}, {"jobs": 3})
    ]
    assert slots == [1, 2, 3]


def test_jobs_run_where_they_are_told_to(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    tell = "print(os.environ['CUDA_VISIBLE_DEVICES'], os.sched_getaffinity(0), file=open(sys.argv[1], 'w'))"
    # The affinity is set from outside when the process has started: give it a moment.
    code = f"import os, sys, time; time.sleep(1); {tell}"
    executor = LocalExecutor(2)
    jobs = [executor.submit(str(n), (sys.executable, "-c", code, str(tmp_path / str(n)))) for n in range(2)]
    wait_for(lambda: all(job.ended() for job in jobs))
    cores = sorted(os.sched_getaffinity(0))
    expected = [place.cores for place in places(2, [], cores)]
    assert [(tmp_path / str(n)).read_text() for n in range(2)] == [f"{n} {set(expected[n])}\n" for n in range(2)]


# --- words ---


def test_settings_of_a_cluster_are_words():
    assert settings_of("slurm_options", ("time=1:00:00", "--gpus-per-node=2")) == {
        "time": "1:00:00",
        "gpus_per_node": "2",
    }
    for word in ("time", "=3"):
        with pytest.raises(ConfigError, match=f"slurm_options is '{word}'; allowed: KEY=VALUE"):
            settings_of("slurm_options", (word,))


@needs("submitit")
def test_a_machine_without_slurm_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no sbatch on this machine"):
        SlurmExecutor(tmp_path / "s", {}, 1)
    with pytest.raises(ConfigError, match="'partition'; allowed with cluster=local: gpus_per_node"):
        SlurmExecutor(tmp_path / "s", {"cluster": "local", "partition": "gpu"}, 1)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(("module", "on"), [("submitit", "slurm"), ("ray", "ray")])
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, module, on):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'echoless\[cluster\]'"):
        open_executor(SweepOptions("DATA", out="OUT", on=on), tmp_path, 1)


def test_what_a_trial_cannot_ask_of_ray_is_refused(monkeypatch):
    for settings, says in (({"disk": "3"}, "'disk'; allowed: num_cpus"), ({"num_gpus": "two"}, "allowed: a number")):
        with pytest.raises(ConfigError, match=says):
            RayExecutor(settings, 1)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"no Ray cluster answers at 127\.0\.0\.1:9"):
        RayExecutor({}, 1)


# --- Slurm, played ---

SBATCH = """
    import os, subprocess, sys
    from pathlib import Path
    state = Path(os.environ["PLAYED_SLURM"])
    if (state / "full").exists():
        sys.exit("sbatch: error: QOSMaxSubmitJobPerUserLimit")
    number = 100 + len(list(state.glob("*.pid")))
    (state / f"{number}.sh").write_text(Path(sys.argv[1]).read_text())
    job = subprocess.Popen(["bash", str(state / f"{number}.sh")], start_new_session=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           env={**os.environ, "SLURM_JOB_ID": str(number)})
    (state / f"{number}.pid").write_text(str(job.pid))
    print(f"Submitted batch job {number}")
"""
SRUN = """
    import os, sys
    words = sys.argv[1:]
    while words[0].startswith("--"):
        words = words[1:] if words[0] == "--unbuffered" else words[2:]
    os.execvp(words[0], words)
"""
SACCT = """
    import os, sys
    from pathlib import Path
    state = Path(os.environ["PLAYED_SLURM"])
    print("JobID|State|NodeList")
    for file in state.glob("*.pid"):
        try:
            alive = "Z" not in Path(f"/proc/{file.read_text()}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            alive = False
        print(f"{file.stem}|{'RUNNING' if alive else 'NODE_FAIL'}|n1")
"""
SCANCEL = """
    import os, signal, sys
    from pathlib import Path
    os.killpg(int((Path(os.environ["PLAYED_SLURM"]) / f"{sys.argv[1]}.pid").read_text()), signal.SIGTERM)
"""


@pytest.fixture
def played_slurm(tmp_path, monkeypatch):
    """A folder with a record of every job: NUMBER.sh, NUMBER.pid."""
    programs, state = tmp_path / "bin", tmp_path / "state"
    programs.mkdir()
    state.mkdir()
    for name, code in {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT, "scancel": SCANCEL}.items():
        (programs / name).write_text(f"#!{sys.executable}\n{textwrap.dedent(code)}")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PLAYED_SLURM", str(state))
    if importlib.util.find_spec("submitit") is None:
        pytest.skip("NOT RUN: submitit is not installed, so Slurm was not tried")
    return state


def planned(out, *names, commands=(("--version",),)):
    (out / "logs").mkdir(parents=True)
    trials = [Trial(name=name, settings={"seed": 0}, commands=commands) for name in names]
    for name in names:
        (out / name).mkdir()
        write_json(out / name / "results.json", [])
    return trials


def outcomes(trials, out, executor, stop=None):
    said: list[str] = []
    executor.seconds = 0.2
    found = run_trials(trials, out, executor, stop or StopRequest(), lambda _: None, said.append, Starting())
    return {trial.name: outcome.state for trial, outcome in found}, said


def test_slurm_jobs_are_command_lines_with_the_options_of_sbatch(tmp_path, played_slurm):
    trials, out = planned(tmp_path / "s", "a", "b"), tmp_path / "s"
    settings = settings_of("slurm_options", ("partition=gpu", "time=12:00:00", "gpus-per-node=1", "exclusive=true"))
    found, _ = outcomes(trials, out, SlurmExecutor(out / "slurm", settings, 2))
    assert found == {"a": "done", "b": "done"} and all(is_done(out, trial) for trial in trials)
    script = (played_slurm / "100.sh").read_text()
    for line in ("partition=gpu", "time=12:00:00", "gpus-per-node=1", "exclusive", "signal=TERM@120"):
        assert f"#SBATCH --{line}\n" in script
    assert script.count("#SBATCH --time") == 1
    # What is pickled is a class of submitit with words in it, and nothing of ours.
    (pickle, *_) = (out / "slurm").glob("*_submitted.pkl")
    assert b"submitit" in pickle.read_bytes() and b"echoless.sweeps.dispatch" not in pickle.read_bytes()


def test_jobs_of_a_sweep_that_was_killed_are_waited_for_and_not_submitted_again(tmp_path, played_slurm):
    """The first sweep submits and vanishes; the second finds its job running."""
    (trial,), out = planned(tmp_path / "s", "a", commands=(("serve", str(tmp_path), "--port", "0"),)), tmp_path / "s"
    first = SlurmExecutor(out / "slurm", {}, 1)
    Ledger(out, trial).plan()
    job = first.submit("a", Starting().trial_arguments(out, "a"))
    wait_for(lambda: Ledger(out, trial).begun)
    second = SlurmExecutor(out / "slurm", {}, 1)
    found = second.submit("a", ("never", "run"))
    assert not found.ended() and len(list(played_slurm.glob("*.pid"))) == 1
    found.cancel()
    wait_for(job.ended)
    assert not found.is_alive() and Ledger(out, trial).ended.state == "stopped"
    assert SlurmExecutor(out / "slurm", {}, 1).submit("a", ("true",)) and len(list(played_slurm.glob("*.pid"))) == 2


def test_a_job_that_slurm_refuses_is_told_in_one_sentence(tmp_path, played_slurm):
    (played_slurm / "full").touch()
    executor = SlurmExecutor(tmp_path / "slurm", {}, 1)
    with pytest.raises(RunError, match=r"Slurm refused the job of a: .*QOSMaxSubmitJobPerUserLimit"):
        executor.submit("a", ("true",))


def test_a_node_that_fails_costs_nothing(tmp_path, played_slurm):
    """The whole job is killed; its trial is submitted again and ends well."""
    (trial,), out = planned(tmp_path / "s", "a", commands=(("--version",),)), tmp_path / "s"
    executor = SlurmExecutor(out / "slurm", {}, 1)
    submit = executor.submit

    def submit_and_kill(name, words):
        job = submit(name, words)
        if len(list(played_slurm.glob("*.pid"))) == 1:
            os.killpg(int((played_slurm / "100.pid").read_text()), signal.SIGKILL)
        return job

    executor.submit = submit_and_kill
    found, said = outcomes([trial], out, executor)
    assert found == {"a": "done"} and said == ["a was lost (job 100: NODE_FAIL) and is started again"]


@needs("submitit")
def test_submitits_own_executor_for_this_machine(tmp_path):
    trials, out = planned(tmp_path / "s", "a", "b"), tmp_path / "s"
    found, _ = outcomes(trials, out, SlurmExecutor(out / "slurm", {"cluster": "local"}, 2))
    assert found == {"a": "done", "b": "done"}


# --- the same sweep everywhere ---

SWEEP = ["--alpha-min", "1.0", "0.6", "--seeds", "2", "--recipe", "demo", "--batch-size", "8", "--max-steps", "60"]
SWEEP += ["--over", "patch_size=16", "--metrics", "rank", "knn", "--jobs", "2"]


def start_sweep(out, *words, **environment):
    command = [sys.executable, "-m", "echoless", "sweep", "shapes:64", "--out", str(out), *SWEEP, *words]
    with out.with_suffix(".txt").open("w") as said:
        return subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, **environment})


def training_of(out, trial):
    """The process that trains it."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "pretrain" in words and str(out / trial) in words:
                return int(folder.name)
    return None


def kill_one_in_the_middle(out):
    """The training of one trial, by SIGKILL, when it has made a few steps."""
    trial = "alpha_min-0.6_seed-0"
    metrics = out / trial / "metrics.jsonl"
    wait_for(lambda: metrics.is_file() and len(metrics.read_bytes().splitlines()) > 5)
    os.kill(wait_for(lambda: training_of(out, trial)), signal.SIGKILL)


def numbers(out):
    with (out / "sweep.csv").open(newline="") as file:
        return [tuple(sorted(row.items())) for row in csv.DictReader(file)]


def table_of(out):
    said = out.with_suffix(".txt").read_text()
    return said[said.rindex("alpha_min on shapes") : said.index("all numbers:")]


@contextlib.contextmanager
def two_ray_nodes():
    """On 127.0.0.1 alone; the address."""
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@needs("submitit")
@needs("ray")
@pytest.mark.filterwarnings("ignore")  # of Ray, which is not ours
def test_the_same_sweep_on_three_executors_with_one_trial_killed_on_each(tmp_path):
    with two_ray_nodes() as address:
        for name, words, more in (
            ("local", [], {}),
            ("slurm", ["--on", "slurm", "--slurm-options", "cluster=local"], {}),
            ("ray", ["--on", "ray"], {"RAY_ADDRESS": address}),
        ):
            sweep = start_sweep(tmp_path / name, *words, OMP_NUM_THREADS="1", **more)
            kill_one_in_the_middle(tmp_path / name)
            said = tmp_path / f"{name}.txt"
            assert sweep.wait(1800) == 0, said.read_text()
            assert "alpha_min-0.6_seed-0 was lost (killed by SIGKILL" in said.read_text()
    found = [numbers(tmp_path / name) for name in ("local", "slurm", "ray")]
    assert len(found[0]) == 16 and found[0] == found[1] == found[2]
    assert len({table_of(tmp_path / name) for name in ("local", "slurm", "ray")}) == 1
    print(
        f"local, submitit, Ray: {len(found[0])} numbers of 4 runs, one of which was killed on each, equal in every bit"
    )
    print(table_of(tmp_path / "local"))


@pytest.mark.slow
@needs("ray")
@pytest.mark.filterwarnings("ignore")
def test_tasks_of_ray_run_on_two_nodes_and_a_stop_lets_them_save(tmp_path, monkeypatch):
    trials, out = planned(tmp_path / "s", "a", "b"), tmp_path / "s"
    with two_ray_nodes() as address:
        monkeypatch.setenv("RAY_ADDRESS", address)
        executor = RayExecutor({}, 2)
        try:
            assert outcomes(trials, out, executor)[0] == {"a": "done", "b": "done"}
            (trial,) = planned(tmp_path / "t", "c", commands=(("serve", str(tmp_path), "--port", "0"),))
            stop = StopRequest()
            ended = run_trials(
                [trial],
                tmp_path / "t",
                executor,
                stop,
                lambda _: stop_once_begun(stop, trial, tmp_path / "t"),
                print,
                Starting(),
            )
            assert [outcome.state for _, outcome in ended] == ["stopped"]
            assert Ledger(tmp_path / "t", trial).ended.text == "stopped by SIGTERM"
            with pytest.raises(ConfigError, match="a run needs num_gpus=1, but the Ray cluster has 0 in all"):
                RayExecutor({"num_gpus": "1"}, 1)
        finally:
            executor.close()


def stop_once_begun(stop, trial, out):
    if Ledger(out, trial).begun:
        stop.requested = "SIGINT"


# --- a scheduler asks a job to end: SIGTERM, and a deadline ---

ONE_TRIAL = "alpha_min-0.6_seed-0"
ONE = ["--alpha-min", "0.6", "--seeds", "1", "--recipe", "demo", "--batch-size", "8", "--max-steps", "100"]
ONE += ["--over", "patch_size=16", "--metrics", "rank"]


def start_one(out, *words, **environment):
    command = [sys.executable, "-m", "echoless", "sweep", "shapes:64", "--out", str(out), *ONE, *words]
    with out.with_suffix(".txt").open("w") as said:
        return subprocess.Popen(
            command, stdout=said, stderr=said, env={**os.environ, "OMP_NUM_THREADS": "1"} | environment
        )


def job_of(out):
    """The process of the trial itself, which the executor has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "trial" in words and str(out) in words:
                return int(folder.name)
    return None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "sweep"
    assert start_one(out).wait(1800) == 0, out.with_suffix(".txt").read_text()
    return out


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")  # of Ray, which is not ours
@pytest.mark.parametrize(
    "on", [pytest.param("slurm", marks=needs("submitit")), pytest.param("ray", marks=needs("ray"))]
)
def test_a_job_that_is_asked_to_end_saves_is_queued_again_and_loses_no_step(on, undisturbed, tmp_path):
    """As Slurm asks before the time limit. It goes on after the very step at which the signal came."""
    out = tmp_path / "sweep"
    with two_ray_nodes() if on == "ray" else contextlib.nullcontext() as address:
        how = ["--on", "ray"] if on == "ray" else ["--on", "slurm", "--slurm-options", "cluster=local"]
        sweep = start_one(out, *how, **({"RAY_ADDRESS": address} if on == "ray" else {}))
        metrics = out / ONE_TRIAL / "metrics.jsonl"
        wait_for(lambda: metrics.is_file() and len(metrics.read_bytes().splitlines()) > 5)
        os.kill(wait_for(lambda: job_of(out)), signal.SIGTERM)
        assert sweep.wait(1800) == 0, out.with_suffix(".txt").read_text()
    assert f"{ONE_TRIAL} was lost (stopped by SIGTERM) and is started again" in out.with_suffix(".txt").read_text()
    log = (out / "logs" / f"{ONE_TRIAL}.txt").read_text()
    saved = re.search(r"stopped by SIGTERM after step (\d+); everything is saved", log)
    assert saved and f"resuming after step {saved[1]} of 100" in log
    assert numbers(out) == numbers(undisturbed)
    losses = [
        [json.loads(line)["loss"] for line in (each / ONE_TRIAL / "metrics.jsonl").open()]
        for each in (out, undisturbed)
    ]
    assert losses[0] == losses[1]
    print(f"{on}: SIGTERM after step {saved[1]} of 100, queued again, continued there: every loss and number equal")
