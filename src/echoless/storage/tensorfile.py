"""How are named tensors written to and read from one safetensors file?

The writer is ours because it hashes what it writes, holds one tensor at a time, gives the file the mode the umask asks
for, and writes equal tensors as equal bytes. Tied weights are written in full under each name, so that any reader of
safetensors can use the file. The reader lets the safetensors library validate the header and then reads into new
tensors: no memory map that a later change of the file would invalidate, and never more memory than the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from echoless.errors import RunError, UntrustedFile
from echoless.storage.jsonfile import open_untrusted
from echoless.storage.seal import Seal, create_sealed

HEADER_LIMIT = 16 * 2**20  # bytes, enough for 100,000 tensors; the format itself allows 100 MB

_DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Seal:
    """Write a new safetensors file, forced to the disk, and return its size and hash."""
    header = _header(path, tensors, metadata or {})
    with create_sealed(path) as writer:
        writer.write(header)
        for name in _order(tensors):
            writer.write(_little_endian_bytes(tensors[name]))
    return writer.seal()


def file_bytes(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> int:
    """How large `write_tensors` would make the file."""
    return len(_header(path, tensors, metadata or {})) + sum(tensor.nbytes for tensor in tensors.values())


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of an untrusted safetensors file, and its metadata."""
    with open_untrusted(path) as file:
        data_start = _check_header_size(file, path)
        layout, metadata = _layout(path)
        file.seek(data_start)
        tensors = {name: _read_tensor(file, path, name, dtype, shape) for name, dtype, shape in layout}
    return tensors, metadata


def check_header(path: Path) -> None:
    """Refuse a file that `read_tensors` would refuse, without reading its tensors."""
    with open_untrusted(path) as file:
        _check_header_size(file, path)
    _layout(path)


def _order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Wide elements first, so that every tensor starts at a multiple of its element size; then by name."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def _header(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": dict(sorted({"format": "pt", **metadata}.items()))}
    end = 0
    for name in _order(tensors):
        start, end = end, end + _checked(path, name, tensors[name]).nbytes
        dtype, shape = _NAMES[tensors[name].dtype], list(tensors[name].shape)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_LIMIT:
        raise RunError(f"{path} would have a header of {len(text)} bytes; allowed: {HEADER_LIMIT}")
    return len(text).to_bytes(8, "little") + text


def _checked(path: Path, name: str, tensor: Tensor) -> Tensor:
    if name == "__metadata__":
        raise RunError(f"{path} cannot hold a tensor called {name!r}; the format keeps that name for itself")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or tensor.dtype not in _NAMES:
        raise RunError(
            f"{path} cannot hold tensor {name!r} ({tensor.dtype}, {tensor.layout}, {tensor.device}); allowed: dense "
            f"tensors of {', '.join(_DTYPES)}"
        )
    return tensor


def _little_endian_bytes(tensor: Tensor) -> memoryview:
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return _memory(dense)


def _memory(dense: Tensor) -> memoryview:
    return memoryview(dense.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]  # numpy has no stub for it


def _check_header_size(file: BinaryIO, path: Path) -> int:
    """Before anything parses the header: where do the tensors begin?"""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, HEADER_LIMIT):
        raise UntrustedFile(
            f"{path} is not a safetensors file: its header would be {length} bytes; "
            f"allowed: at most {HEADER_LIMIT}, and no more than the file has"
        )
    return 8 + length


def _layout(path: Path) -> tuple[list[tuple[str, torch.dtype, list[int]]], dict[str, str]]:
    """Name, type and shape of every tensor in file order; the library has checked that they fill the file exactly."""
    try:
        with safe_open(path, framework="pt") as handle:
            layout = [(name, *_type_and_shape(handle, path, name)) for name in handle.offset_keys()]
            return layout, dict(handle.metadata() or {})
    except (SafetensorError, ValueError, OSError, OverflowError, RecursionError) as error:
        raise UntrustedFile(f"{path} is not a safetensors file: {error}") from None


def _type_and_shape(handle: Any, path: Path, name: str) -> tuple[torch.dtype, list[int]]:
    entry = handle.get_slice(name)
    if (dtype := entry.get_dtype()) not in _DTYPES:
        raise UntrustedFile(f"{path} holds tensor {name!r} of type {dtype}; allowed: {', '.join(_DTYPES)}")
    return _DTYPES[dtype], entry.get_shape()


def _read_tensor(file: BinaryIO, path: Path, name: str, dtype: torch.dtype, shape: list[int]) -> Tensor:
    try:
        tensor = torch.empty(shape, dtype=dtype)
    except (RuntimeError, OverflowError, TypeError):
        raise UntrustedFile(f"{path} holds tensor {name!r} of impossible shape {shape[:8]}") from None
    view = _memory(tensor)
    if file.readinto(view) != len(view):  # type: ignore[attr-defined]
        raise UntrustedFile(f"{path} ends inside tensor {name!r}")
    return tensor
