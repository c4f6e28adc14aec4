"""`sweep --paper` can be steered: every option reaches the commands it is for, or is refused by its name."""

from __future__ import annotations

import shlex
import sys

import pytest
from torch.distributed.run import get_args_parser

from echoless.config.options import SweepOptions
from echoless.errors import ConfigError, RunError
from echoless.sweeps.commands import option_of, with_options
from echoless.sweeps.papers import PAPERS, paper
from echoless.sweeps.run import command_lines, plan, run_sweep
from echoless.sweeps.starting import Starting
from echoless.verbs.sweep import sweep


def steered(name: str, **options):
    given = {"paper": name, "seeds": 1, "test": "TEST"} | options
    return paper(name, "DATA", SweepOptions("DATA", out="OUT", **given))


def trainings(experiment, name):
    return {option_of(trial.commands[0], name) for trial in experiment.trials}


def test_an_option_of_a_command_is_replaced_in_its_place_added_or_removed():
    words = ("pretrain", "DATA", "--out", "RUN", "--init-constants", "1", "2", "3", "--no-zero-init", "--resume")
    assert with_options(words, init_constants=(4, 5, 6))[4:8] == ("--init-constants", "4", "5", "6")
    assert with_options(words, zero_init=True)[8] == "--zero-init" and len(with_options(words, out=None)) == 8
    assert with_options(words, seed=1)[-2:] == ("--seed", "1")
    assert option_of(words, "resume") == () and option_of(words, "seed") is None


@pytest.mark.parametrize("name", PAPERS)
def test_length_and_batch_size_reach_every_training_of_every_experiment(name):
    experiment = steered(name, epochs=3.5, batch_size=32)
    assert trainings(experiment, "epochs") == {("3.5",)} and trainings(experiment, "batch_size") == {("32",)}
    assert trainings(experiment, "max_steps") == {None}, "the scale's own length is replaced"
    assert "Changed on request: epochs 3.5; batch_size 32." in experiment.notes
    assert trainings(steered(name, max_steps=7), "max_steps") == {("7",)}


def test_a_few_steps_are_a_few_of_fine_tuning_too_and_many_do_not_prolong_it():
    """Otherwise `--max-steps 2` of Table 1 takes as long as its fine-tunings: 400 steps of a whole encoder, each."""
    for scale, given, steps in (("tiny", 2, "2"), ("tiny", 9000, "400"), ("tiny", None, "400"), ("paper", 2, None)):
        experiment = steered("table1", scale=scale, max_steps=given)
        tunings = {option_of(words, "max_steps") for trial in experiment.trials for words in trial.commands[2:]}
        assert tunings == {steps and (steps,)}, "at scale paper its length is in epochs"


def test_over_fixes_one_value_and_varies_several():
    fixed = steered("table1", over=("depth=4",))
    assert trainings(fixed, "depth") == {("4",)} and len(fixed.trials) == 3
    varied = steered("table3b", over=("depth=4,6", "mask_ratio=0.5"))
    assert len(varied.trials) == 12 and trainings(varied, "depth") == {("4",), ("6",)}
    assert {trial.settings["depth"] for trial in varied.trials} == {4, 6}
    assert all("mask_ratio" not in trial.settings for trial in varied.trials), "what is fixed is no column"


def test_a_row_names_the_network_that_it_trains():
    """`scaling` shows depth and width: changed by --over, they must not be those of the plan, nor one row for two."""
    (trial, *_) = steered("scaling", over=("depth=12",)).trials
    assert option_of(trial.commands[0], "depth") == ("12",) and trial.settings["depth"] == 12
    assert trial.name == "depth-12_width-64_alpha_min-1.0_seed-0"
    faded = next(each for each in steered("scaling", over=("depth=12",)).trials if each.settings["alpha_min"] == 0.6)
    assert faded.settings["effective"] == "3.6e-03", "of twelve blocks, not of six"
    both = steered("scaling", over=("depth=6,12",)).trials
    assert len({trial.group for trial in both}) == 2 * 3, "two depths are no repetitions of each other"
    assert len({trial.name for trial in both}) == len(both)


def test_metrics_replace_the_measured_columns_and_leave_the_others():
    experiment = steered("table1", metrics=("knn", "rank"))
    measured = [words for words in experiment.trials[0].commands if words[0] == "evaluate"]
    assert [option_of(words, "metrics") for words in measured] == [("knn", "rank")]
    assert [column.metric for column in experiment.quantities] == ["finetune", "knn", "rank_paper"]


@pytest.mark.parametrize("name", ["table1", "fig3", "scaling"])
def test_an_encoder_is_pretrained_on_data_and_measured_with_other_labelled_images(name):
    """The usual case: many images without labels, and few with. Their labels and masks are not those of DATA."""
    experiment = steered(name, train="FEW", labels="FEW.csv")
    for pretraining, *rest in (trial.commands for trial in experiment.trials):
        assert pretraining[1] == "DATA" and option_of(pretraining, "labels") is None
        for words in rest:
            assert option_of(words, "train") == ("FEW",) and option_of(words, "labels") == ("FEW.csv",)


def test_label_maps_reach_what_is_measured_by_them():
    for name, options in (("fig3", {}), ("dino", {}), ("table2", {"metrics": ("segprobe",)})):
        experiment = steered(name, masks="MAPS", test_masks="OTHERS", **options)
        assert {option_of(trial.commands[1], "test_masks") for trial in experiment.trials} == {("OTHERS",)}


@pytest.mark.parametrize(("length", "snapshot"), [({"max_steps": 20}, 10), ({"epochs": 2.0}, None), ({}, 2000)])
def test_the_snapshot_at_half_of_the_training_follows_its_length(length, snapshot):
    """A snapshot of the experiment's own length would never be written in a shorter run, and its samples would fail."""
    experiment = steered("sit", **length)
    faded = experiment.trials[-1]
    assert option_of(faded.commands[0], "snapshot_every") == (None if snapshot is None else (str(snapshot),))
    sources = [words[1] for words in faded.commands if words[0] == "sample"]
    assert sources == ["{run}", *([] if snapshot is None else [f"{{run}}/snapshots/step-{snapshot:08d}"])]


def test_an_autoencoder_and_an_extractor_reach_the_diffusion_models():
    """With an extractor of the user's, none is trained."""
    experiment = steered("table4", latent="VAE", extractor="inception:FILE")
    assert trainings(experiment, "latent") == {("VAE",)}
    commands = [words for trial in experiment.trials for words in trial.commands]
    assert {option_of(words, "extractor") for words in commands if words[0] == "evaluate"} == {("inception:FILE",)}
    assert len([words for words in commands if words[0] == "pretrain"]) == len(experiment.trials)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("table1", {"latent": "vae"}, "latent is not an option of recipe demo"),
        ("table2", {"extractor": "timm:x"}, "extractor is 'timm:x', but the experiment table2 compares no samples"),
        ("table2", {"reference": "train"}, "reference is 'train', but the experiment table2 compares no samples"),
        ("table2", {"masks": "MAPS"}, "masks is 'MAPS', but the experiment table2 segments no images"),
        ("table4", {"test_masks": "MAPS"}, "test_masks is 'MAPS', but the experiment table4 segments no images"),
        ("table4", {"train": "FEW"}, "train is 'FEW', but the experiment table4 learns from DATA and its labels"),
        ("fig7", {"train": "FEW"}, "train is 'FEW', but the experiment fig7 learns from DATA and its labels"),
        ("table2", {"over": ("depth=6",)}, "over is 'depth', but the rows of table2 differ in it"),
        (
            "skipless",
            {"metrics": ("knn",)},
            "metrics is 'knn', but skipless is measured by its training alone",
        ),
        ("table2", {"metrics": ("frechet",)}, "metrics is 'frechet', but the experiment table2 draws no samples"),
        ("infonce", {"accumulate": 2}, "accumulate is 2; allowed: 1 with infonce"),
        ("table1", {"epochs": 1.0, "max_steps": 3}, "either epochs or max_steps"),
        ("table1", {"epochs": -1.0}, "epochs is -1.0"),
        ("table1", {"over": ("mask_ratio=7",)}, "mask_ratio is 7"),
        ("table1", {"over": ("alpha_min=0.5",)}, "over is 'alpha_min=0.5'"),
        ("table1", {"workers": -1}, "workers is -1"),
        ("scaling", {"alpha_min": (0.5,)}, "alpha_min is 0.5, but the rows of scaling-tiny have 1.0, 0.6, 0.4; choose"),
    ],
)
def test_what_an_experiment_cannot_use_is_refused_by_name(name, options, says):
    with pytest.raises(ConfigError) as refused:
        steered(name, **options)
    assert says in str(refused.value)


def test_a_value_of_a_column_chooses_among_the_rows():
    """A study of 32 networks is weeks of a processor; a part of it is an evening."""
    part = steered("scaling", scale="cpu", alpha_min=(1.0, 0.5), over=("depth=12", "width=64"), seeds=2)
    rows = [{key: trial.settings[key] for key in ("depth", "width", "alpha_min", "seed")} for trial in part.trials]
    assert rows == [
        {"depth": 12, "width": 64, "alpha_min": alpha, "seed": seed} for seed in (0, 1) for alpha in (1.0, 0.5)
    ]
    whole = steered("scaling", scale="cpu", seeds=2)
    assert all(trial in whole.trials for trial in part.trials), "others can be added later"
    assert "Changed on request: depth 12; width 64; alpha_min 1.0, 0.5." in part.notes
    assert len(steered("skipless", over=("optimizer=soap",)).trials) == 4


def test_a_table_that_names_rows_by_the_alpha_of_the_paper_is_not_chosen_by_it():
    """At scale tiny its 0.6 is trained as 0.324, so neither number could be meant without a doubt."""
    assert steered("table2", scale="cpu", alpha_min=(0.6,)).trials
    with pytest.raises(ConfigError, match=r"alpha_min is .*, but the experiment table2 sets its own"):
        steered("table2", alpha_min=(0.6,))


@pytest.mark.parametrize("option", [{"alpha_min": (0.5,)}, {"recipe": "demo"}])
def test_what_an_experiment_sets_itself_is_refused_by_name(option, tmp_path):
    with pytest.raises(ConfigError, match=f"{next(iter(option))} is .* but the experiment table1 sets its own"):
        sweep("shapes:8", out=tmp_path / "s", paper="table1", test="shapes:8@test", print=True, **option)
    with pytest.raises(ConfigError, match="extractor is 'x', but it applies only with --paper"):
        sweep("shapes:8", out=tmp_path / "s", extractor="x", print=True)


def test_how_trainings_are_started_is_no_part_of_a_trial():
    """So another launcher, or more micro-batches after the memory was full, continue the sweep."""
    options = {"accumulate": 4, "workers": 6, "launcher": "torchrun --nproc-per-node 8"}
    assert steered("table1", **options) == steered("table1")
    starting = Starting.of(SweepOptions("DATA", out="OUT", print=True, **options))
    train, measure, tune = map(starting.line, steered("table1").trials[0].commands)
    for line, verb in ((train, "pretrain"), (tune, "finetune")):
        words = shlex.split(line)
        assert words[:7] == ["torchrun", "--nproc-per-node", "8", "-m", "echoless", "--", verb]
        assert option_of(tuple(words), "accumulate") == ("4",) and option_of(tuple(words), "workers") == ("6",)
    assert measure.startswith("echoless evaluate ") and "--workers" not in measure


def test_a_launcher_draws_samples_and_takes_none_of_their_options():
    """By torch's own parser, for which `--n` alone is an abbreviation of two of its options."""
    starting = Starting.of(SweepOptions("DATA", out="OUT", print=True, launcher="torchrun --nproc-per-node 8"))
    draw = next(words for words in steered("diffusion").trials[0].commands if words[0] == "sample")
    assert option_of(draw, "n") is not None
    program, *words = shlex.split(starting.line(draw))
    found = get_args_parser().parse_args(words)
    assert program == "torchrun" and (found.module, found.training_script) == (True, "echoless")
    assert found.training_script_args == list(draw) and found.nproc_per_node == "8"


@pytest.mark.parametrize("launcher", ["", "  ", "torchrun 'unclosed", "no-such-program-here -n 8"])
def test_a_launcher_that_cannot_start_anything_is_refused(launcher):
    with pytest.raises(ConfigError, match="launcher is "):
        Starting.of(SweepOptions("DATA", out="OUT", launcher=launcher))


def test_a_launcher_starts_the_run_and_ends_with_the_sweep(tmp_path):
    """A launcher of one process: Python itself takes `-m`."""
    said: list[str] = []
    options = {"recipe": "demo", "batch_size": 8, "over": ("patch_size=16",), "metrics": ("rank",), "seeds": 1}
    options |= {"alpha_min": (0.6,), "max_steps": 4, "launcher": f"{sys.executable} -X dev", "accumulate": 2}
    assert not run_sweep(SweepOptions("shapes:16", out=tmp_path / "s", **options), said.append).failed
    assert "--accumulate 2" in (tmp_path / "s" / "logs" / "alpha_min-0.6_seed-0.txt").read_text()


def printed(out, **options) -> list[str]:
    said: list[str] = []
    run_sweep(SweepOptions("DATA", out=out, print=True, **options), said.append)
    return said


def test_printing_another_plan_leaves_the_recorded_one(tmp_path):
    """Another scale has the same rows under the same names, and is refused; more seeds are only printed."""
    first = {"paper": "table3b", "seeds": 1}
    printed(tmp_path / "s", **first)
    before = (tmp_path / "s" / "sweep.json").read_bytes()
    assert len(printed(tmp_path / "s", **first)) == 6 and len(printed(tmp_path / "s", paper="table3b", seeds=2)) == 12
    for other in ({"scale": "cpu"}, {"max_steps": 5}):
        with pytest.raises(RunError, match="with other settings; nothing was printed or changed"):
            printed(tmp_path / "s", **first, **other)
    assert (tmp_path / "s" / "sweep.json").read_bytes() == before


@pytest.mark.parametrize("name", PAPERS)
def test_printed_lines_share_no_folder_but_those_they_wait_for(name, tmp_path):
    """Side by side, no two lines write into one folder, or all that do wait for each other."""
    options = SweepOptions("DATA", out=tmp_path, paper=name, seeds=2, test="TEST", print=True)
    writers: dict[str, set[int]] = {}
    waits: dict[str, set[bool]] = {}
    for number, line in enumerate(command_lines(plan(options), tmp_path, Starting())):
        for command in line.split(" && "):
            words = tuple(shlex.split(command))
            for out in option_of(words, "out") or ():
                writers.setdefault(out, set()).add(number)
                waits.setdefault(out, set()).add("--wait" in words)
    shared = {out for out, lines in writers.items() if len(lines) > 1}
    assert all(waits[out] == {True} for out in shared)
    assert all(waits[out] == {False} for out in set(writers) - shared)
