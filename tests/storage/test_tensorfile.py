"""Proves our safetensors files against the safetensors library, both ways, bit for bit."""

from __future__ import annotations

import hashlib

import pytest
import torch
from safetensors.torch import load_file, save_file

from echoless.errors import RunError, UntrustedFile
from echoless.storage.seal import check_seal
from echoless.storage.tensorfile import _DTYPES, HEADER_LIMIT, file_bytes, read_tensors, write_tensors


def sample_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(0, 2, (24, 8), generator=generator, dtype=torch.uint8)
    tensors = {f"of {name}": raw.to(dtype) for name, dtype in _DTYPES.items()}
    base = torch.randn(6, 5, generator=generator)
    odd = torch.tensor([float("nan"), -0.0, float("inf"), 1e-45])
    shaped = {"scalar": torch.tensor(3.5), "empty": torch.zeros(0, 3), "transposed": base.T, "strided": base[::2, 1:3]}
    return {**tensors, **shaped, "base": base, "tied": base, "expanded": torch.ones(1).expand(7), "odd": odd}


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    flat = tensor.detach().contiguous().reshape(-1)
    return tensor.dtype, tuple(tensor.shape), flat.view(torch.uint8).numpy().tobytes()


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return {k: bits(v) for k, v in left.items()} == {k: bits(v) for k, v in right.items()}


def test_the_library_reads_what_we_write(tmp_path):
    tensors = sample_tensors()
    seal = write_tensors(tmp_path / "a", tensors, {"note": "α"})
    assert same(load_file(tmp_path / "a"), tensors)
    data = (tmp_path / "a").read_bytes()
    assert seal == (len(data), hashlib.sha256(data).hexdigest()) == (file_bytes("a", tensors, {"note": "α"}), seal[1])


def test_we_read_what_the_library_writes(tmp_path):
    tensors = {name: tensor.contiguous().clone() for name, tensor in sample_tensors().items()}
    save_file(tensors, tmp_path / "a", metadata={"x": "y"})
    found, metadata = read_tensors(tmp_path / "a")
    assert same(found, tensors) and metadata == {"x": "y"}


def test_we_read_what_we_write_and_no_tensors_are_a_file_too(tmp_path):
    write_tensors(tmp_path / "a", sample_tensors(), {"x": "y"})
    found, metadata = read_tensors(tmp_path / "a")
    assert same(found, sample_tensors()) and metadata == {"format": "pt", "x": "y"}
    write_tensors(tmp_path / "none", {})
    assert read_tensors(tmp_path / "none") == ({}, {"format": "pt"})


def test_what_was_read_does_not_depend_on_the_file_any_more(tmp_path):
    write_tensors(tmp_path / "a", {"x": torch.ones(1000)})
    found, _ = read_tensors(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"")
    assert found["x"].sum() == 1000


def test_the_order_of_insertion_and_the_strides_do_not_change_the_bytes(tmp_path):
    tensors = sample_tensors()
    first = write_tensors(tmp_path / "a", tensors)
    again = {name: tensors[name].contiguous().clone() for name in reversed(tensors)}
    assert write_tensors(tmp_path / "b", again) == first


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(2, dtype=torch.complex128)],
    ids=["sparse", "meta", "complex128"],
)
def test_tensors_the_format_cannot_hold_are_refused_by_name(tmp_path, tensor):
    with pytest.raises(RunError, match=r"cannot hold tensor 'w' \(torch"):
        write_tensors(tmp_path / "a", {"w": tensor})
    with pytest.raises(RunError, match="keeps that name for itself"):
        write_tensors(tmp_path / "a", {"__metadata__": torch.ones(1)})


def test_a_seal_notices_size_and_content(tmp_path):
    seal = write_tensors(tmp_path / "a", {"x": torch.ones(100)})
    check_seal(tmp_path / "a", seal)
    data = bytearray((tmp_path / "a").read_bytes())
    data[-1] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(RunError, match="a is damaged: its SHA-256"):
        check_seal(tmp_path / "a", seal)
    (tmp_path / "a").write_bytes(data[:-1])
    with pytest.raises(RunError, match=f"it has {len(data) - 1} bytes, and {len(data)} were written"):
        check_seal(tmp_path / "a", seal)


def test_an_oversized_header_is_refused_before_it_is_parsed(tmp_path):
    length = HEADER_LIMIT + 1
    with (tmp_path / "a").open("wb") as file:
        file.write(length.to_bytes(8, "little"))
        file.truncate(length + 8)
    with pytest.raises(UntrustedFile, match=f"header would be {length} bytes"):
        read_tensors(tmp_path / "a")
