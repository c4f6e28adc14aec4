"""A line of `sweep --print` that cannot end well is refused before its training begins, not after."""

from __future__ import annotations

import pytest

from echoless.errors import DataError
from echoless.verbs.sweep import sweep
from echoless.verbs.trial import trial


@pytest.mark.parametrize(
    ("paper", "given", "says"),
    [
        ("fig3", {"test": "nowhere"}, "data 'nowhere' does not exist"),
        ("fig3", {"train": "nowhere"}, "data 'nowhere' does not exist"),
        ("fig3", {"labels": "nowhere.csv"}, "labels file nowhere.csv does not exist"),
        ("fig3", {"test_masks": "maps"}, "maps does not exist, and `evaluate` of this trial needs it"),
        ("table4", {"extractor": "inception:file.pth"}, "file.pth does not exist, and `evaluate` of this trial needs"),
    ],
)
def test_what_a_later_command_would_miss_is_refused_before_the_first(paper, given, says, tmp_path):
    options = {"test": "shapes:20@test", "paper": paper, "seeds": 1, "max_steps": 1} | given
    planned = sweep("shapes:20", out=tmp_path / "s", print=True, **options)
    with pytest.raises(DataError, match=says):
        trial(tmp_path / "s", planned.experiment.trials[0].name)
    assert not (tmp_path / "s" / planned.experiment.trials[0].name).exists()
