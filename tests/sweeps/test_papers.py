"""The papers' experiments are laid out as they were: the right cells, the published figures, commands that parse."""

from __future__ import annotations

import json

import pytest

from echoless.cli.parsing import parse
from echoless.config import DataConfig
from echoless.config.facts import DataFacts
from echoless.config.metrics import Metric
from echoless.config.options import PretrainOptions, SweepOptions
from echoless.errors import ConfigError
from echoless.recipes.resolve import resolve
from echoless.shortcuts import alphas, effective_alpha
from echoless.storage import write_json
from echoless.sweeps.papers import PAPERS, paper
from echoless.sweeps.papers.readings import final_loss, learned_alphas, norm_growth, stability
from echoless.sweeps.papers.scale import SCALES, vit
from echoless.sweeps.tabulate import rows
from echoless.verbs.table import VERBS

# Cells of each table or figure, counted in the paper (the row in between MAE and ours is our own).
CELLS = {
    "table1": 3,
    "table2": 27,
    "table3a": 6,
    "table3b": 6,
    "table5": 1,
    "fig3": 3,
    "fig4": 6,
    "fig5c": 12,
    "fig6": 3,
}
CELLS |= {"zero-init": 10, "unstable": 6, "table4": 8, "fig8": 2, "sit": 3}
# What published FIDs need, at scale paper: ImageNet on latents, seen by Inception.
LATENT, SAMPLED = {"latent": "VAE", "extractor": "inception:FILE"}, ("table4", "fig8", "sit", "diffusion")


def planned(name, scale="tiny", seeds=1):
    more = LATENT if scale == "paper" and name in SAMPLED else {}
    options = SweepOptions("DATA", out="OUT", paper=name, scale=scale, seeds=seeds, test="TEST", **more)
    return paper(name, "DATA", options)


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_is_there_once_for_each_seed_at_every_scale(name):
    for scale in SCALES:
        plan = planned(name, scale, seeds=2)
        assert plan.name == name and len(plan.trials) == 2 * CELLS[name]


@pytest.mark.parametrize("name", PAPERS)
def test_every_command_is_one_that_its_verb_accepts(name):
    """One command for each set of flags; every setting of every run is settled."""
    seen = set()
    for scale in SCALES:
        for trial in planned(name, scale).trials:
            for words in trial.commands:
                flags = tuple(word for word in words if word.startswith("--"))
                if (words[0], flags) in seen:
                    continue
                seen.add((words[0], flags))
                read = parse(VERBS[words[0]].options, words[1:], f"echoless {words[0]}")
                if words[0] == "pretrain":
                    assert read.resume and isinstance(read, PretrainOptions)
                    resolve(read, DataFacts(3, 64, 64, 1000, classes=10), DataConfig())


@pytest.mark.parametrize("name", CELLS)
def test_every_published_figure_finds_its_row(name):
    plan = planned(name)
    columns = [dict(trial.settings) for trial in plan.trials]
    for figure in plan.published:
        wanted = {key: value for key, value in figure.settings.items() if key not in plan.by}
        assert any(wanted.items() <= row.items() for row in columns), figure
        assert figure.metric in {quantity.metric for quantity in plan.quantities}


def test_the_figures_of_table_2_are_the_papers():
    """Spot checks against the printed table, and its headline: a small faded model above a large plain one."""
    figures = {(f.settings["size"], f.settings["alpha_min"]): f.value for f in planned("table2").published}
    assert len(figures) == 27 and figures["768x12", 0.5] == 0.823, "0.5 is from an earlier version"
    assert (figures["384x12", 0.6], figures["768x18", 0.7], figures["1024x24", 1.0]) == pytest.approx(
        (0.785, 0.85, 0.814)
    )
    assert figures["768x12", 0.6] > figures["1024x24", 1.0]


def test_at_the_papers_scale_the_widths_are_the_papers():
    trials = planned("table2", "paper").trials
    encoders = set()
    for trial in trials:
        words = trial.commands[0]
        encoders.add(tuple(int(words[words.index(flag) + 1]) for flag in ("--width", "--depth")))
    assert encoders == {(384, 12), (768, 12), (1024, 12), (768, 18), (1024, 24)}


def test_an_unknown_experiment_is_answered_with_the_nearest_and_table_1_needs_a_test_set():
    with pytest.raises(ConfigError, match="did you mean 'table2'"):
        planned("tabel2")
    with pytest.raises(ConfigError, match="--test"):
        paper("table1", "DATA", SweepOptions("DATA", out="OUT", paper="table1"))


def test_the_learned_alphas_stand_beside_the_papers():
    plan = planned("table5")
    trial = plan.trials[0].name
    found = [Metric(metric="alpha", value=0.5, n=1, protocol={"features": "trained", "block": 12, "sublayer": "FFN"})]
    found += [Metric(metric="linear", value=0.3, n=9, protocol={"features": "trained", "layer": "block11/+mlp"})]
    shown = {row.columns.get("block"): row for row in rows(plan, {trial: found})}
    assert shown[None].published == {"linear %": 0.795} and shown[None].values["linear %"] == {0: 0.3}
    assert shown[12].published == {"alpha": 0.353} and shown[12].values["alpha"] == {0: 0.5}


def journal(run, lines, steps=10):
    run.mkdir()
    write_json(run / "config.json", {"steps": steps})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_readings_of_a_log_written_by_hand(tmp_path):
    lines = [
        {"step": s, "loss": loss, "gradient_norm": g} for s, loss, g in ((1, 1.0, 2.0), (2, 0.5, 1.0), (3, 0.8, 8.0))
    ]
    lines[0]["feature_norm"] = {"block00": 1.0, "block11": 2.0}
    lines[2]["feature_norm"] = {"block00": 9.0, "block11": 3.0}
    run = journal(tmp_path / "run", lines, steps=6)
    seen = {m.metric: m.value for reading in (final_loss, norm_growth, stability) for m in reading(run)}
    assert seen == pytest.approx(
        {"final_loss": 0.8, "norm_first": 2, "norm_largest": 3, "norm_last": 3}
        | {"completed": 0.5, "setback": 0.3, "gradient_peak": 4}
    )
    assert learned_alphas(run) == []
    empty = journal(tmp_path / "empty", [])
    assert [reading(empty) for reading in (final_loss, norm_growth, stability)] == [[], [], []]


@pytest.mark.parametrize("depth, alpha_min", [(12, 0.6), (18, 0.7), (24, 0.8)])
def test_networks_of_half_the_depth_keep_the_papers_effective_alpha(depth, alpha_min):
    """The effective alpha decides, not alpha_min (Table 2): a row at scale tiny stands for the row of the paper."""
    options = vit(SCALES["tiny"], {}, depth=depth, alpha_min=alpha_min).options
    assert options["depth"] == depth // 2 and options["alpha_min"] < alpha_min
    published = effective_alpha(alphas(depth, alpha_min=alpha_min))
    assert effective_alpha(alphas(options["depth"], alpha_min=options["alpha_min"])) == pytest.approx(
        published, rel=0.02
    )
    assert vit(SCALES["cpu"], {}, depth=depth, alpha_min=alpha_min).options == {
        "width": 128,
        "depth": depth,
        "alpha_min": alpha_min,
    }


def test_a_table_says_where_its_networks_have_other_alphas_than_its_rows():
    """At half the depth; not where nothing is faded by a given alpha, nor at the published depth."""
    note = "With 6 blocks instead of 12, 0.324 stands for 0.6"
    said = {name for name in PAPERS if any(note in line for line in planned(name).notes)}
    assert said == {"table1", "table2", "table3a", "table3b", "fig3", "fig4", "fig5c", "fig6", "unstable", "zero-init"}
    assert not any("stands for" in line for line in planned("table1", "cpu").notes)
