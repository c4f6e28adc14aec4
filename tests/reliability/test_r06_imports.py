"""R6 for imports: no foreign checkpoint or model folder can run code, or eat the memory of its reader.

Every payload goes through every entry point that reads foreign files (the function, the verb, the reader of .pth
files, the reader of Inception's weights; for folders also `inspect`), each in a process of its own forked from a warm
one. Payloads are made here: pickles that run code, bare and inside archives as torch.save writes them; archives whose
members lie about their size; pickles that use nothing but permitted names to ask for endless memory.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from forked import in_child

from echoless.cli.main import main as echoless
from echoless.errors import ConfigError, UntrustedFile
from echoless.evaluation.extractor import open_extractor
from echoless.exchange import import_checkpoint, inspect_model
from echoless.exchange.import_pth import read_pth

MOST_EXTRA_MEGABYTES = 100

# Small tensors under names are what a .pth file is; what their shapes add up to is for the importer to see.
HARMLESS = {(f"vast {what} from small shapes", "read_pth") for what in ("encoder", "SiT", "U-ViT")}

READERS: dict[str, Callable[[Path], object]] = {
    "read_pth": read_pth,
    "import_checkpoint": lambda path: _import(path),
    "open_extractor": lambda path: open_extractor(f"inception:{path}", (8, 8)),
    "echoless import": lambda path: _verb(["import", str(path), "--out", str(path.with_suffix(".verb"))]),
}
FOLDER_READERS: dict[str, Callable[[Path], object]] = {
    "import_checkpoint": READERS["import_checkpoint"],
    "inspect_model": inspect_model,
    "echoless inspect": lambda path: _verb(["inspect", str(path)]),
}


def _import(path: Path) -> None:
    """With answers to what files do not say; only a SiT needs, and only a SiT takes, this objective."""
    answers = {"heads": 1, "decoder_heads": 1, "objective": "ddpm" if path.stem.startswith("sit") else None}
    import_checkpoint(path, path.with_suffix(".out"), **answers)


def _verb(arguments: list[str]) -> None:
    """The command line prints what the function raises; its exit code is all that comes back."""
    if echoless(arguments) == 2:
        raise UntrustedFile("exit code 2")


class Attack:
    """Unpickling it calls a function."""

    def __init__(self, function: Callable, *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple:
        return self.function, self.arguments


class AttackedNamespace(argparse.Namespace):
    def __reduce__(self) -> tuple:
        return exec, (self.code,)


# --- archives as torch.save writes them ---


def archive(
    pickled: bytes, storages: dict[str, bytes] | None = None, *, compress: bool = False, **more: bytes
) -> bytes:
    file = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", kind) as target:
        target.writestr("archive/data.pkl", pickled)
        target.writestr("archive/version", b"3\n")
        for name, content in {**(storages or {}), **more}.items():
            target.writestr(name if "/" in name and not name.startswith("data/") else f"archive/{name}", content)
    return file.getvalue()


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def with_claimed_size(data: bytes, member: str, size: int) -> bytes:
    """The same archive, whose directory says that a member has another size."""
    at = data.rindex(f"archive/{member}".encode()) - 46  # the central entry: its fixed part has 46 bytes
    assert data[at : at + 4] == b"PK\x01\x02"
    return data[: at + 20] + struct.pack("<II", size, size) + data[at + 28 :]


def tensor_pickle(numel: int, size: tuple[int, ...], stride: tuple[int, ...], names: list[str] | None = None) -> bytes:
    """{"model": {name: a tensor over storage 0, ...}} in the opcodes of torch.save."""

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value) if value < 2**31 else b"\x8a\x08" + value.to_bytes(8, "little")

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(numel) + b"tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(0) + numbers(size) + numbers(stride)
    tensor += b"\x89ccollections\nOrderedDict\n)Rt" + b"R"
    entries = b"".join(text(name) + tensor for name in names or ["cls_token"])
    return b"\x80\x02}" + text("model") + b"}(" + entries + b"us."


def pickles(canary: Path) -> dict[str, bytes]:
    touch, code = f"touch {canary}", f"open({str(canary)!r}, 'w')"
    system = pickle.dumps(Attack(os.system, touch), protocol=2)
    hidden = {"model": OrderedDict(w=torch.zeros(2)), "args": Attack(os.system, touch)}
    return {
        "pickle os.system": system,
        "pickle protocol 0": pickle.dumps(Attack(os.system, touch), protocol=0),
        "pickle protocol 4": pickle.dumps(Attack(os.system, touch), protocol=4),
        "archive os.system": archive(system),
        "archive os.system protocol 0": archive(pickle.dumps(Attack(os.system, touch), protocol=0)),
        "archive os.system protocol 4": archive(pickle.dumps(Attack(os.system, touch), protocol=4)),
        "archive exec": archive(pickle.dumps(Attack(exec, code), protocol=2)),
        "archive eval": archive(pickle.dumps(Attack(eval, code), protocol=2)),
        "archive subprocess": archive(pickle.dumps(Attack(subprocess.call, ["touch", str(canary)]), protocol=2)),
        "archive getattr": archive(b"\x80\x02cbuiltins\ngetattr\ncos\nX\x06\x00\x00\x00system\x86R" + b"."),
        "archive import": archive(b"\x80\x02cbuiltins\n__import__\nX\x02\x00\x00\x00os\x85R."),
        "archive of torch.load": archive(b"\x80\x02ctorch\nload\nX\x01\x00\x00\x00a\x85R."),
        "archive of torch.hub": archive(b"\x80\x02ctorch.hub\nload\nX\x01\x00\x00\x00a\x85R."),
        "code in the settings": saved(hidden),
        "code in a settings object": saved({"model": {}, "args": AttackedNamespace(code=code)}),
        "code in the optimiser": saved({"model": {"w": torch.zeros(1)}, "optimizer": {"state": Attack(exec, code)}}),
        "code in the weights": saved({"model": {"w": Attack(exec, code)}}),
        "code among the weights": saved({"model": {"w": torch.zeros(1), "x": [Attack(eval, code)]}}),
        "torch.save, old format": _old_format(hidden),
        "nested archive": archive(archive(system)),
        "python source": code.encode(),
    }


def _old_format(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def bombs() -> dict[str, bytes]:
    weights = saved({"model": {"cls_token": torch.zeros(1, 1, 8)}})
    one = {"data/0": b"\0" * 32}
    deep = b"\x80\x02" + b"(" * 20_000 + b"t" * 20_000 + b"."
    return {
        "compressed storage": archive(tensor_pickle(2**28, (2**28,), (1,)), {"data/0": b"\0" * 2**28}, compress=True),
        "compressed pickle": archive(b"\x80\x02" + b"N0" * 2**22 + b"N.", compress=True),
        "member claims 3 GB": with_claimed_size(weights, "data/0", 3 * 2**30),
        "pickle claims 3 GB": with_claimed_size(weights, "data.pkl", 3 * 2**30),
        "storage claims a tebibyte": archive(tensor_pickle(2**38, (2**38,), (1,)), one),
        "tensor of a storage repeated": archive(tensor_pickle(8, (2**30, 8), (0, 1)), one),
        "tensor beyond its storage": archive(tensor_pickle(8, (2**20,), (1,)), one),
        "tensor of negative size": archive(tensor_pickle(8, (-8,), (1,)), one),
        "names for one storage by the thousand": archive(
            tensor_pickle(2**16, (2**16,), (1,), [f"w{i}" for i in range(4_000)]), {"data/0": b"\0" * 2**18}
        ),
        "bytearray of 100 GB": archive(b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\x00\xe8\x76\x48\x17\x85R."),
        "tensor type called": archive(b"\x80\x02ctorch\nFloatTensor\n\x8a\x05\x00\xe8\x76\x48\x17\x85R."),
        "pickle nested deeply": archive(deep),
        "pickle without end": archive(b"\x80\x02" + b"}" * 1000),
        "pickle of 9 MB": archive(b"\x80\x02" + b"N0" * (9 * 2**19) + b"N."),
        "member missing": archive(tensor_pickle(8, (8,), (1,))),
        "member twice": archive(tensor_pickle(8, (8,), (1,)), {**one, "archive/data/0": b"\1" * 32}),
        "member outside": archive(tensor_pickle(8, (8,), (1,)), {"../../data/0": b"\0" * 32}),
        "member absolute": archive(tensor_pickle(8, (8,), (1,)), {"/etc/cron.d/x": b"\0" * 32}),
        "member of TorchScript": archive(tensor_pickle(8, (8,), (1,)), {"archive/code/__torch__.py": b"import os"}),
        "archive cut": weights[: len(weights) // 2],
        "archive with a byte of its pickle changed": weights.replace(b"_rebuild_tensor_v2", b"_rebuild_tensor_vX"),
        "archive empty": b"PK\x05\x06" + b"\0" * 18,
        "starts like an archive": b"PK\x03\x04" + b"\0" * 1000,
        "empty": b"",
        "a list": saved([torch.zeros(1)]),
        "numbers under names": saved({"model": {"w": 1.0}}),
        "names that are numbers": saved({"model": {7: torch.zeros(1)}}),
        "sparse": _sparse(),
        "meta tensor": saved({"model": {"w": torch.empty(10**6, device="meta")}}),
        "vast encoder from small shapes": saved({"model": _vast()}),
        "vast SiT from small shapes": saved({"ema": _vast_sit()}),
        "vast U-ViT from small shapes": saved(_vast_uvit()),
        "TorchScript that is none": archive(b"\x80\x02N.", {"constants.pkl": b"\x80\x02)."}),
    }


def _sparse() -> bytes:
    return saved({"model": {"w": torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (10**9,))}})


def _vast() -> dict[str, torch.Tensor]:
    """A few hundred kilobytes whose shapes speak of a model of terabytes."""
    width = 40_000
    return {
        "cls_token": torch.zeros(width),
        "pos_embed": torch.zeros(1, 2, width),
        "patch_embed.proj.weight": torch.zeros(width, 1, 1, 1),
        "patch_embed.proj.bias": torch.zeros(width),
        **{f"blocks.0.{layer}.{kind}": torch.zeros(width if "fc1" in layer else 1)
           for layer in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
           for kind in ("weight", "bias")},
    }  # fmt: skip


def _vast_sit() -> dict[str, torch.Tensor]:
    width = 40_000
    names = ["t_embedder.mlp.0", "t_embedder.mlp.2", "final_layer.adaLN_modulation.1", "final_layer.linear"]
    names += [f"blocks.0.{layer}" for layer in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2", "adaLN_modulation.1")]
    state = {f"{name}.{kind}": torch.zeros(width) for name in names for kind in ("weight", "bias")}
    return state | {
        "pos_embed": torch.zeros(1, 1, width),
        "x_embedder.proj.weight": torch.zeros(width, 1, 1, 1),
        "x_embedder.proj.bias": torch.zeros(width),
        "y_embedder.embedding_table.weight": torch.zeros(2, width),
    }


def _vast_uvit() -> dict[str, torch.Tensor]:
    width = 40_000
    blocks = ("in_blocks.0", "mid_block", "out_blocks.0")
    layers = ("norm1", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
    names = ["norm", "decoder_pred", "out_blocks.0.skip_linear", *(f"{b}.{layer}" for b in blocks for layer in layers)]
    state = {f"{name}.{kind}": torch.zeros(width) for name in names for kind in ("weight", "bias")}
    return state | {
        **{f"{block}.attn.qkv.weight": torch.zeros(width) for block in blocks},
        "pos_embed": torch.zeros(1, 2, width),
        "patch_embed.proj.weight": torch.zeros(width, 1, 1, 1),
        "patch_embed.proj.bias": torch.zeros(width),
    }


def special_files(folder: Path) -> dict[str, Path]:
    (folder / "special").mkdir()
    made = {
        name: folder / "special" / f"{i}.pth" for i, name in enumerate(("pipe", "link to a device", "password file"))
    }
    os.mkfifo(made["pipe"])
    made["link to a device"].symlink_to("/dev/zero")
    made["password file"].symlink_to("/etc/passwd")
    return made


def folders(folder: Path, canary: Path) -> dict[str, Path]:
    """Model folders that bring code, or settings that ask for the impossible."""
    code = f"open({str(canary)!r}, 'w')\n"
    evil = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    known = {"model_type": "vit", "auto_map": {"AutoModel": "evil.Model"}, "hidden_size": 7}
    made = {}
    for name, config in {
        "code under a new name": evil,
        "code under a known name": known,
        "a class of another module": {"_class_name": "os.system", "command": f"touch {canary}"},
        "a pipeline that is no model": {"_class_name": "DiffusionPipeline"},
        "a model of exabytes": {"model_type": "vit", "hidden_size": 2**29, "num_hidden_layers": 1},
        "a list": [],
        "nothing": {},
    }.items():
        path = made[name] = folder / f"folder-{len(made)}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
        (path / "evil.py").write_text(code)
        (path / "configuration_evil.py").write_text(code)
        (path / "model.safetensors").write_bytes(pickle.dumps(Attack(exec, code)))
        (path / "pytorch_model.bin").write_bytes(pickle.dumps(Attack(exec, code)))
    return made


def dit_folder(folder: Path) -> Path:
    """A DiT of a few kilobytes, whose config asks for positions of terabytes."""
    from safetensors.torch import save_file

    block, embed = "transformer_blocks.0", "transformer_blocks.0.norm1.emb.timestep_embedder"
    names = [f"{embed}.linear_1", f"{embed}.linear_2", "proj_out_1", "proj_out_2", f"{block}.norm1.linear"]
    names += [f"{block}.{name}" for name in ("attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0")]
    names += [f"{block}.ff.net.0.proj", f"{block}.ff.net.2"]
    state = {f"{name}.{kind}": torch.zeros(8) for name in names for kind in ("weight", "bias")}
    state |= {"pos_embed.proj.weight": torch.zeros(8, 1, 1, 1), "pos_embed.proj.bias": torch.zeros(8)}
    folder.mkdir()
    save_file(state, folder / "diffusion_pytorch_model.safetensors")
    config = {"_class_name": "DiTTransformer2DModel", "sample_size": 10**6, "num_attention_heads": 1}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


# --- the trial, in forked children ---

REFUSALS = {"refused": (UntrustedFile,), "refused setting": (ConfigError,)}


def warm_up(folder: Path) -> None:
    """Load what the readers import before the forks, so that its memory is not counted as a payload's."""
    from transformers import ViTConfig

    ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8).save_pretrained(folder)
    inspect_model(folder)
    import diffusers

    assert diffusers.ModelMixin
    (nothing := folder / "nothing.pth").touch()
    for read in READERS.values():
        with suppress(UntrustedFile):
            read(nothing)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    canary = folder / "canary"
    warm_up(folder / "warm")
    counts, worst = {"loads": 0, "refused": 0, "accepted": 0, "untyped": 0}, 0.0
    good = folder / "good.pth"
    good.write_bytes(saved({"model": {"w": torch.zeros(3)}, "args": argparse.Namespace(lr=1.0), "epoch": 1}))
    assert in_child({"read_pth": read_pth}, good, REFUSALS).readers == {"read_pth": "accepted"}
    jobs: list[tuple[str, Path, dict[str, Callable[[Path], object]]]] = []
    for name, payload in {**pickles(canary), **bombs()}.items():
        path = folder / f"{'sit-' if 'SiT' in name else ''}payload-{len(jobs)}.pth"
        path.write_bytes(payload)
        jobs.append((name, path, READERS))
    jobs += [(name, path, READERS) for name, path in special_files(folder).items()]
    jobs += [(name, path, FOLDER_READERS) for name, path in folders(folder, canary).items()]
    importing = {"import_checkpoint": READERS["import_checkpoint"]}
    jobs.append(("a DiT with positions of terabytes", dit_folder(folder / "dit"), importing))
    for name, path, readers in jobs:
        found, megabytes = in_child(readers, path, REFUSALS)
        worst = max(worst, megabytes)
        for reader, verdict in found.items():
            if (name, reader) in HARMLESS:
                continue
            counts["loads"] += 1
            counts["refused"] += verdict == "refused" or (verdict == "refused setting" and readers is FOLDER_READERS)
            counts["accepted"] += verdict == "accepted"
            counts["untyped"] += verdict not in ("refused", "accepted", "refused setting")
            if verdict != "refused":
                print(f"{name}: {reader}: {verdict}", file=sys.stderr)
        if megabytes > MOST_EXTRA_MEGABYTES:
            print(f"{name}: {megabytes:.0f} MB", file=sys.stderr)
    left = len([path for path in folder.iterdir() if path.suffix in (".out", ".verb")])
    figures = " ".join(f"{key}={value}" for key, value in counts.items())
    good.write_bytes(saved({"model": {"w": torch.ones(2**24)}}))
    accepted, megabytes = in_child({"read_pth": read_pth}, good, REFUSALS)
    assert accepted == {"read_pth": "accepted"}
    print(
        f"R6 imports payloads={len(jobs)} {figures} canaries={int(canary.exists())} left={left} "
        f"extra_megabytes={worst:.0f} for_a_good_file_of_64={megabytes:.0f}"
    )


def test_no_foreign_checkpoint_runs_code_or_eats_memory(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__, str(tmp_path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout.strip())
    figures = {key: float(value) for key, value in (word.split("=") for word in done.stdout.split()[2:])}
    assert figures["payloads"] >= 15
    assert figures["refused"] == figures["loads"], done.stderr
    assert figures["accepted"] == figures["untyped"] == figures["canaries"] == figures["left"] == 0, done.stderr
    assert figures["extra_megabytes"] < MOST_EXTRA_MEGABYTES, done.stderr
    assert figures["for_a_good_file_of_64"] < 2 * 64


def test_an_older_torch_is_not_trusted_with_such_files(tmp_path, monkeypatch):
    (tmp_path / "a.pth").write_bytes(saved({"w": torch.zeros(1)}))
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(ConfigError, match=r"torch is 2\.9\.1\+cpu; allowed for reading a\.pth: 2\.10 or newer"):
        read_pth(tmp_path / "a.pth")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
