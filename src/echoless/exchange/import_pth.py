"""How is an untrusted `.pth` file read? Here, and nowhere else, with three guards.

1. The archive: a zip as torch.save writes it, nothing compressed, nothing larger than the file that holds it.
2. The pickle in it is read opcode by opcode, without running any, and refused if it names anything but tensors,
   dictionaries and argparse.Namespace (which training scripts put their settings in).
3. torch.load with weights_only, of a torch in which that has no known hole, with argparse.Namespace allowed.

What comes out are dense tensors that fit into the file, under names; everything else is dropped, and said to be.
"""

from __future__ import annotations

import argparse
import os
import pickletools
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from echoless.errors import ConfigError, UntrustedFile
from echoless.storage.jsonfile import open_untrusted

SAFE_TORCH = (2, 10)  # earlier ones: CVE-2025-32434 and CVE-2026-24747, both through weights_only
PICKLE_LIMIT = 8 * 2**20  # bytes; a huge model with its optimiser takes a tenth of it
MOST_MEMBERS = 100_000

_MEMBER = re.compile(r"[^/\\\x00]{1,255}/(data\.pkl|version|byteorder|\.format_version|\.storage_alignment"
                     r"|data/\d{1,9}|\.data/serialization_id)")  # fmt: skip
_STORAGES = ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
_NAMES = {
    "argparse Namespace",
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    *(f"torch {kind}Storage" for kind in _STORAGES),
}
# What torch.save writes (protocol 2). Everything else, such as a name put together on the stack, is not needed.
_OPCODES = frozenset({
    "PROTO", "STOP", "MARK", "GLOBAL", "REDUCE", "BUILD", "NEWOBJ", "BINPERSID", "BINPUT", "LONG_BINPUT", "BINGET",
    "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM",
    "SETITEMS",
})  # fmt: skip


@dataclass(frozen=True)
class PthFile:
    """The tensors of the model, the settings of the script that trained it, and the names of what was dropped."""

    tensors: dict[str, Tensor]
    settings: dict[str, Any]
    dropped: tuple[str, ...]


def read_pth(path: Path) -> PthFile:
    """The weights in a file written by torch.save; UntrustedFile for anything that is not exactly that."""
    if TorchVersion(torch.__version__) < SAFE_TORCH:  # type: ignore[operator]  # it compares with tuples
        needed = ".".join(map(str, SAFE_TORCH))
        raise ConfigError(f"torch is {torch.__version__}; allowed for reading {path.name}: {needed} or newer")
    with open_untrusted(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_pickle(_check_archive(file, size, path), path)
        file.seek(0)
        content = _load(file, path)
    return _sorted_out(content, size, path)


def _check_archive(file: BinaryIO, size: int, path: Path) -> bytes:
    """Refuse what torch.save does not write; returns the pickle."""
    if file.read(4) != b"PK\x03\x04":
        raise UntrustedFile(
            f"{path} is not a zip archive; allowed: a file that torch.save wrote (since torch 1.6 that is a zip)"
        )
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check_members(members, size, path)
            pickles = [member for member in members if member.filename.endswith("/data.pkl")]
            if len(pickles) != 1 or pickles[0].file_size > PICKLE_LIMIT:
                raise UntrustedFile(
                    f"{path} has {len(pickles)} data.pkl; allowed: one, of at most {PICKLE_LIMIT} bytes"
                )
            return archive.read(pickles[0])
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, RuntimeError, EOFError) as error:
        raise UntrustedFile(f"{path} is not a zip archive that torch.save wrote: {error}") from None


def _check_members(members: list[zipfile.ZipInfo], size: int, path: Path) -> None:
    names = [member.filename for member in members]
    for member in members:
        if not _MEMBER.fullmatch(member.filename):
            raise UntrustedFile(f"{path} holds {member.filename[:80]!r}, which torch.save does not write")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise UntrustedFile(f"{path} holds {member.filename!r} compressed or encrypted; torch.save does neither")
        if member.compress_size != member.file_size or member.file_size > size:
            raise UntrustedFile(
                f"{path} says that {member.filename!r} has {member.file_size} bytes; the file has {size}"
            )
    if len(names) > MOST_MEMBERS or len(set(names)) != len(names) or len({name.split("/")[0] for name in names}) != 1:
        raise UntrustedFile(f"{path} holds {len(names)} members; allowed: {MOST_MEMBERS}, each once, in one folder")
    if sum(member.file_size for member in members) > size:
        raise UntrustedFile(f"{path} claims more bytes in its members than it has")


def _check_pickle(pickled: bytes, path: Path) -> None:
    """Read the opcodes, run none."""
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name not in _OPCODES:
                raise UntrustedFile(
                    f"{path} uses the pickle instruction {opcode.name}, which torch.save does not write"
                )
            if opcode.name == "GLOBAL" and argument not in _NAMES:
                name = str(argument).replace(" ", ".")
                raise UntrustedFile(
                    f"{path} asks for {name[:100]!r}; allowed: tensors, dictionaries and argparse.Namespace; nothing "
                    "of it was run"
                )
    except (ValueError, EOFError, IndexError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise UntrustedFile(f"{path} holds a damaged pickle: {str(error)[:200]}") from None


def _load(file: BinaryIO, path: Path) -> Any:
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(file, map_location="cpu", weights_only=True)
    except UntrustedFile:
        raise
    except (Exception, RecursionError) as error:  # whatever a hostile file can provoke in a parser
        reason = " ".join(str(error).split())[:200]
        raise UntrustedFile(f"{path} is refused by torch.load ({type(error).__name__}): {reason}") from None


def _sorted_out(content: Any, size: int, path: Path) -> PthFile:
    if not isinstance(content, dict):
        raise UntrustedFile(f"{path} holds a {type(content).__name__}; allowed: a dictionary of weights")
    # Averaged weights first: where a file has both, they are the ones that were published.
    inner = next((key for key in ("ema", "model", "state_dict") if isinstance(content.get(key), dict)), None)
    state = content if inner is None else content[inner]
    tensors = {name: _checked(name, value, path) for name, value in state.items()}
    # Tied weights may be stored once and named twice; ten names for one storage are an attempt to fill the memory.
    if sum(tensor.nbytes for tensor in tensors.values()) > 2 * size:
        raise UntrustedFile(f"{path} names tensors of more than twice its {size} bytes")
    dropped = () if inner is None else tuple(sorted(str(key)[:80] for key in content if key != inner))
    settings = content.get("args") if inner is not None else None
    return PthFile(tensors, _plain_settings(settings), dropped)


def _checked(name: Any, value: Any, path: Path) -> Tensor:
    if not isinstance(name, str) or not isinstance(value, Tensor):
        raise UntrustedFile(
            f"{path} holds {str(name)[:80]!r}, a {type(value).__name__}; allowed among the weights: tensors by name"
        )
    tensor = value.detach()
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        raise UntrustedFile(f"{path} holds {name!r} as {tensor.layout} on {tensor.device}; allowed: dense, in the file")
    if tensor.nbytes > tensor.untyped_storage().nbytes():
        raise UntrustedFile(f"{path} says that {name!r} has the shape {tuple(tensor.shape)}, more than is stored")
    return tensor


def _plain_settings(settings: Any) -> dict[str, Any]:
    """The numbers and words of an argparse.Namespace; hints for the reader, never trusted further."""
    values = vars(settings) if isinstance(settings, argparse.Namespace) else settings
    if not isinstance(values, Mapping):
        return {}
    return {str(key): value for key, value in values.items() if isinstance(value, bool | int | float | str)}
