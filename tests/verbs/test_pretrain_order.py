"""Nothing of an old run is deleted before the new one is known to be possible."""

from __future__ import annotations

import pytest

from echoless.errors import ConfigError, DataError
from echoless.verbs.pretrain import pretrain

SMALL = {"recipe": "demo", "max_steps": 1, "batch_size": 2, "patch_size": 8, "workers": 0}


@pytest.fixture
def old(tmp_path):
    assert pretrain("shapes:16", out=tmp_path / "run", **SMALL)
    return tmp_path / "run"


def test_overwrite_keeps_the_old_run_when_the_data_is_bad(old):
    before = sorted(path.name for path in old.rglob("*"))
    with pytest.raises(DataError, match="does not exist"):
        pretrain("no-such-folder", out=old, overwrite=True, **SMALL)
    assert sorted(path.name for path in old.rglob("*")) == before


def test_overwrite_replaces_it_when_all_is_well(old):
    (old / "log.txt").write_text("old\n")
    assert pretrain("shapes:16", out=old, overwrite=True, **SMALL)
    assert "old\n" not in (old / "log.txt").read_text()


def test_a_run_is_not_started_from_the_one_it_overwrites(old):
    with pytest.raises(ConfigError, match="which --overwrite would delete"):
        pretrain("shapes:16", out=old, overwrite=True, init=str(old), **SMALL)


def test_a_run_that_goes_on_has_no_encoder_until_it_is_complete_again(old, monkeypatch):
    import echoless.training.loop as loop

    seen = []
    original = loop.take_step
    monkeypatch.setattr(loop, "take_step", lambda *a: (seen.append((old / "encoder").exists()), original(*a))[1])
    assert pretrain("shapes:16", out=old, resume=True, **SMALL | {"max_steps": 2})
    assert seen == [False] and (old / "encoder").exists()


def test_classes_may_be_asked_for_by_name_where_the_data_has_labels(tmp_path):
    small = SMALL | {"recipe": "sit-tiny", "patch_size": 16}
    assert pretrain("shapes:16", out=tmp_path / "run", conditional=True, **small)
    assert '"classes": 10' in (tmp_path / "run" / "config.json").read_text()
