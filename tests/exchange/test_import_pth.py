"""Each guard of the reader of `.pth` files refuses by itself, with its own sentence: none relies on the next one.

That hostile files run nothing and take no memory whichever guard stops them: tests/reliability/test_r06_imports.py.
Run alone: pytest tests/exchange/test_import_pth.py
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from echoless.errors import UntrustedFile
from echoless.exchange import import_pth
from echoless.exchange.import_pth import read_pth


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


WEIGHTS = {"model": {"w": torch.arange(6.0)}, "args": Namespace(epochs=3), "optimizer": {"step": 7}}


def repacked(change=lambda name, content: [(name, content)], compress: int = zipfile.ZIP_STORED) -> bytes:
    """A file of torch.save whose members went through `change`."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(WEIGHTS))) as source, zipfile.ZipFile(file, "w", compress) as target:
        for member in source.infolist():
            for name, content in change(member.filename, source.read(member)):
                target.writestr(name, content)
    return file.getvalue()


@pytest.fixture
def file(tmp_path: Path):
    def write(content: bytes) -> Path:
        (tmp_path / "a.pth").write_bytes(content)
        return tmp_path / "a.pth"

    return write


@pytest.fixture
def unread(monkeypatch):
    """What follows the first two guards must not be reached."""
    monkeypatch.setattr(import_pth, "_load", lambda *_: pytest.fail("torch.load was reached"))


def test_a_file_that_torch_save_wrote_is_read_whole(file):
    for content in (saved(WEIGHTS), repacked()):
        found = read_pth(file(content))
        assert list(found.tensors) == ["w"] and found.tensors["w"].equal(torch.arange(6.0))
        assert found.settings == {"epochs": 3} and found.dropped == ("args", "optimizer")


def beside(name: str, content: bytes):
    """Every member as it is, and one more beside the pickle."""

    def change(member: str, data: bytes) -> list[tuple[str, bytes]]:
        folder = member.split("/")[0]
        return [(member, data), *([(name.format(folder), content)] if member.endswith("data.pkl") else [])]

    return change


ARCHIVES = {
    "compressed": (repacked(compress=zipfile.ZIP_DEFLATED), "compressed or encrypted"),
    "another member": (repacked(beside("{}/code/__torch__.py", b"")), "which torch.save does not write"),
    "another folder": (repacked(beside("other/version", b"3")), "each once, in one folder"),
    "a member outside": (repacked(beside("../{}/version", b"3")), "which torch.save does not write"),
    "no pickle": (repacked(lambda name, data: [] if name.endswith("data.pkl") else [(name, data)]), "has 0 data.pkl"),
    "not an archive": (b"PK\x05\x06" + b"\0" * 18, "is not a zip archive"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_first_guard_refuses_archives_that_torch_save_does_not_write(name, file, unread):
    content, sentence = ARCHIVES[name]
    with pytest.raises(UntrustedFile, match=sentence):
        read_pth(file(content))


class Attack:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize(
    ("pickled", "sentence"),
    [
        (pickle.dumps({"model": Attack()}, protocol=2), "asks for '(posix|nt).system'"),
        (pickle.dumps({"model": Attack()}, protocol=4), "uses the pickle instruction"),
        (b"\x80\x02}", "holds a damaged pickle"),
    ],
    ids=["a name", "an instruction", "no end"],
)
def test_the_second_guard_refuses_other_names_and_instructions_before_any_is_run(pickled, sentence, file, unread):
    content = repacked(lambda name, data: [(name, pickled if name.endswith("data.pkl") else data)])
    with pytest.raises(UntrustedFile, match=sentence):
        read_pth(file(content))


def test_the_third_guard_lets_torch_load_weights_alone(file, monkeypatch):
    """Without the second one it still refuses."""
    monkeypatch.setattr(import_pth, "_check_pickle", lambda *_: None)
    attack = pickle.dumps({"model": Attack()}, protocol=2)
    content = repacked(lambda name, data: [(name, attack if name.endswith("data.pkl") else data)])
    with pytest.raises(UntrustedFile, match=r"is refused by torch.load \(UnpicklingError\)"):
        read_pth(file(content))


def test_names_for_one_storage_may_be_two_and_not_ten(file):
    weight = torch.zeros(4096)
    assert len(read_pth(file(saved({"model": {"w": weight, "tied": weight}}))).tensors) == 2
    with pytest.raises(UntrustedFile, match="names tensors of more than twice its"):
        read_pth(file(saved({"model": {f"w{i}": weight for i in range(10)}})))
