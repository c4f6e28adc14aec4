"""Data elsewhere is data: the same numbers, paths, labels and fingerprints as on disk, from servers that lose requests,
know no parts, forget their files or answer late; within the limit of the caches, and without a word of a password.

    pytest -s tests/data/test_elsewhere.py
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from far_away import CLASSES, as_parquet, as_tar, in_memory, on_disk, pictures, served

from echoless.cli.main import main
from echoless.config.addresses import has_secrets, is_remote, local_path, without_secrets
from echoless.config.file_systems import require_file_system
from echoless.data import open_images, patience, remote
from echoless.data.provenance import short_name
from echoless.errors import ConfigError, DataError
from echoless.verbs.early import require_data
from echoless.verbs.sweep import sweep

IMAGES = pictures(30)
TARS = {f"part-{n:03d}.tar": as_tar(IMAGES[10 * n : 10 * n + 10], 10 * n) for n in range(3)}
TABLES = {f"part-{n}.parquet": as_parquet(IMAGES[15 * n : 15 * n + 15]) for n in range(2)}
web = pytest.mark.skipif(
    importlib.util.find_spec("aiohttp") is None, reason="NOT RUN: aiohttp is not installed, so no web server was read"
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(patience, "PAUSES", (0.01,) * 6)
    monkeypatch.setattr(remote, "BLOCK", 4096)  # many requests for small files


def facts(images):
    """Everything that decides a run."""
    pixels = [np.asarray(images.get([i]).pixels[0]).tobytes() for i in range(len(images))]
    labels = None if images.labels is None else images.labels.tolist()
    return list(images.paths), labels, images.class_names, images.fingerprint, images.digests_ND.tobytes(), pixels


def opened(data, root, **more):
    return open_images(str(data), cache_dir=Path(root), **more)


@pytest.mark.parametrize("files", [TARS, TABLES], ids=["tar", "parquet"])
def test_a_set_in_memory_is_the_set_on_disk(tmp_path, files):
    here = facts(opened(on_disk(tmp_path / "data", files), tmp_path / "a"))
    with in_memory(files) as address:
        there = facts(opened(address, tmp_path / "b"))
        pattern = facts(opened(f"{address}/part-*", tmp_path / "b"))
        opened(address, tmp_path / "a")
    assert here == there == pattern
    assert len(list((tmp_path / "a").glob("*/pixels.bin"))) == 1  # here and there share what was decoded


@web
@pytest.mark.parametrize(
    "settings", [{"every": 10}, {"ranges": False}, {"marks": False}], ids=["lossy", "whole", "no-mark"]
)
@pytest.mark.parametrize("files", [TARS, TABLES], ids=["tar", "parquet"])
def test_a_set_on_a_bad_web_server_is_the_set_on_disk(tmp_path, files, settings):
    here = facts(opened(on_disk(tmp_path / "data", files), tmp_path / "a"))
    braces = "part-{000..002}.tar" if files is TARS else "part-{0..1}.parquet"
    with served(files, **settings) as server:
        assert facts(opened(f"{server.address}/{braces}", tmp_path / "b")) == here
        assert settings.get("every") is None or server.lost > 0


@web
def test_what_is_known_is_not_fetched_again(tmp_path):
    """The second opening asks what the files are, and reads nothing; a file that changed is read, and only that."""
    with served(dict(TARS)) as server:
        address = f"{server.address}/part-{{000..002}}.tar"
        first = facts(opened(address, tmp_path))
        server.asked.clear()
        assert facts(opened(address, tmp_path)) == first
        assert {line.split()[0] for line in server.asked} == {"HEAD"}
        shutil.rmtree(next(tmp_path.glob("copy-*/part-001.tar")).parent)  # a copy may go: its index stays
        server.asked.clear()
        assert facts(opened(address, tmp_path)) == first and not [a for a in server.asked if a.startswith("GET")]
        server.files["part-001.tar"] = as_tar(pictures(10, seed=9), 10)
        server.asked.clear()
        assert facts(opened(address, tmp_path))[3] != first[3]
        assert {a for a in server.asked if a.startswith("GET")} == {"GET /part-001.tar"}


@web
def test_a_set_larger_than_the_limit_is_read_within_it(tmp_path, monkeypatch):
    """One file at a time; in random order, image by image."""
    here = facts(opened(on_disk(tmp_path / "data", TARS), tmp_path / "a"))
    largest = max(map(len, TARS.values()))
    monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", str(largest + 1000))
    said: list[str] = []
    with served(TARS) as server:
        images = opened(f"{server.address}/part-{{000..002}}.tar", tmp_path / "b", say=said.append)
        assert "images are read from afar" in "".join(said) and not list((tmp_path / "b").glob("*/pixels.bin"))
        server.asked.clear()
        order = np.random.default_rng(0).permutation(30)
        pixels = {int(i): np.asarray(images.get([i]).pixels[0]).tobytes() for i in order}
        assert [pixels[i] for i in range(30)] == here[-1] and images.fingerprint == here[3]
        assert len(server.asked) > 10  # by parts
        assert sum(f.stat().st_size for f in (tmp_path / "b").glob("copy-*/*.tar")) <= largest + 1000
        assert facts(images) == here  # from front to back


def test_threads_that_take_each_others_room_all_read_what_is_right(tmp_path, monkeypatch):
    """There is room for one copy, and six threads read three shards from front to back."""
    here = facts(opened(on_disk(tmp_path / "data", TARS), tmp_path / "a"))
    monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", str(max(map(len, TARS.values())) + 1000))

    def read(shard: int) -> list[bytes]:
        return [np.asarray(images.get([i]).pixels[0]).tobytes() for i in range(10 * shard, 10 * shard + 10)]

    with in_memory(TARS) as address, ThreadPoolExecutor(6) as pool:
        images = opened(address, tmp_path / "b")
        for shard, found in zip([0, 1, 2] * 4, pool.map(read, [0, 1, 2] * 4)):
            assert found == here[-1][10 * shard : 10 * shard + 10]
    assert not images.bad


@web
def test_a_file_that_no_limit_can_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", "1K")
    with served(TARS) as server, pytest.raises(DataError, match=r"part-\d+\.tar has [\d,]+ bytes, more than the 1,000"):
        opened(f"{server.address}/part-{{000..002}}.tar", tmp_path)


@web
def test_a_lost_server_is_one_sentence_and_the_same_command_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(patience, "PAUSES", (0.0,) * 2)
    with served(TARS) as server:
        address = f"{server.address}/part-{{000..002}}.tar"
        first = facts(opened(address, tmp_path / "a"))
        opened(f"{server.address}/part-000.tar", tmp_path / "b")  # one of three
        server.every = 1
        with pytest.raises(
            DataError, match=r"cannot be read: .* \(3 attempts in 0 s\); what was fetched is kept, the same"
        ):
            opened(address, tmp_path / "b")
        server.every = 0
        assert facts(opened(address, tmp_path / "b")) == first


@web
@pytest.mark.parametrize(("status", "says"), [(404, "there is no such file"), (403, "Forbidden|403|no such file")])
def test_an_answer_that_will_not_change_is_not_waited_for(tmp_path, status, says):
    with served(TARS, status=status) as server:
        with pytest.raises(DataError, match=says):
            opened(f"{server.address}/part-000.tar", tmp_path)
        assert len(server.asked) <= 2


@web
def test_no_word_of_a_password_is_kept_or_said(tmp_path, monkeypatch):
    """Neither in errors, nor in files of the cache, nor in what a run records."""
    with served(TARS) as server:
        secret = server.address.replace("http://", "http://me:hunter2@") + "/part-000.tar?token=abc123&x=1"
        said: list[str] = []
        opened(secret, tmp_path / "a", say=said.append)
        server.every = 1
        with pytest.raises(DataError) as error:
            opened(secret.replace("000", "001"), tmp_path / "a", say=said.append)
    texts = [*said, str(error.value), short_name(secret), without_secrets(f"GET {secret} failed")]
    texts += [file.read_bytes().decode(errors="replace") for file in (tmp_path / "a").rglob("*") if file.is_file()]
    texts += [str(file) for file in (tmp_path / "a").rglob("*")]
    assert len(said) >= 1 and not [text for text in texts if "hunter2" in text or "abc123" in text]
    with pytest.raises(ConfigError, match="with a password or a token, which the plan of a sweep"):
        sweep(secret, out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://u:p@host/a.tar?X-Amz-Signature=1", "https://host/a.tar"),
        ("https://TOKEN@host/a.tar", "https://host/a.tar"),
        ("s3://KEY:SECRET@bucket/x-*.tar", "s3://bucket/x-*.tar"),
        ("abfs://container@account/x.tar", "abfs://container@account/x.tar"),
        ("s3://bucket/part-00?.tar", "s3://bucket/part-00?.tar"),
        ("hf://datasets/u/n@main/data/*.parquet", "hf://datasets/u/n@main/data/*.parquet"),
        ("photos/a?b=c", "photos/a?b=c"),
        ("https://u:p@ss@host/a@b.tar", "https://host/a@b.tar"),
        ("https://u:it's@host/a.tar?TOKEN", "https://host/a.tar"),
        ("https://host:8080/a@b.tar", "https://host:8080/a@b.tar"),
        ("s3://KEY:SE/CR+ET@bucket/a.tar", "s3://bucket/a.tar"),
        ("https:/u:p@host/a.tar?t=1", "https:/host/a.tar"),
        ("simplecache::https://u:p@host/a.tar", "simplecache::https://host/a.tar"),
        ("zip://*.tar::https://host/a.zip?TOKEN", "zip://*.tar::https://host/a.zip"),
    ],
)
def test_what_is_shown_of_an_address(address, shown):
    assert without_secrets(address) == shown and has_secrets(address) is (address != shown)


@pytest.mark.parametrize("address", ["https://host/my data.tar?sig=SECRET", "s3://key:sec'ret@bucket/x.tar"])
def test_an_address_whose_secret_could_not_be_told_from_the_text_around_it_is_refused(address):
    with pytest.raises(DataError, match="write %20, %27") as refused:
        require_file_system(address)
    assert "SECRET" not in str(refused.value) and "sec'ret" not in str(refused.value)


@pytest.mark.parametrize("path", ["photos", "shapes:100@test", "C:\\photos", "a.parquet", "photos/*.jpg"])
def test_paths_are_not_addresses(path):
    assert not is_remote(path) and is_remote("s3://b/c") and is_remote("simplecache::https://h/x.tar")


def test_an_address_of_this_machine_is_a_path(tmp_path):
    """Nothing is copied."""
    assert local_path("file:///a/file://b") == "/a/file://b"
    folder = on_disk(tmp_path / "data", TARS)
    assert facts(opened(f"file://{folder}", tmp_path / "a")) == facts(opened(folder, tmp_path / "b"))
    assert not list((tmp_path / "a").glob("copy-*"))


def test_bad_images_elsewhere_are_the_bad_images_on_disk(tmp_path):
    """What cannot be decoded is listed with the same reasons, from copies and from afar."""
    files = {"a.tar": as_tar([*IMAGES[:8], b"no image", IMAGES[9][:-30]]), "b.tar": as_tar(IMAGES[10:20], 10)[:-7000]}
    local = opened(on_disk(tmp_path / "data", files), tmp_path / "a", max_bad_fraction=0.5)
    assert len(local.bad) >= 2
    with in_memory(files) as address:
        images = opened(address, tmp_path / "b", max_bad_fraction=0.5)
        assert images.bad == local.bad and images.fingerprint == local.fingerprint
        with pytest.raises(DataError, match="bad"):
            opened(address, tmp_path / "c", max_bad_fraction=0.01).require_usable()


def test_an_image_that_changes_after_opening_is_not_taken_for_the_old_one(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", str(max(map(len, TARS.values())) + 1000))
    with in_memory(dict(TARS)) as address:
        images = opened(address, tmp_path, max_bad_fraction=1)
        import fsspec

        for name in TARS:
            fsspec.filesystem("memory").pipe_file(f"/far/{name}", as_tar(pictures(10, seed=5), int(name[5:8]) * 10))
        read = {i: images.get([i]).pixels for i in (3, 17, 29)}
    old = opened(on_disk(tmp_path / "data", TARS), tmp_path / "a")
    assert all((old.get([i]).pixels[0] == found[0]).all() for i, found in read.items() if len(found))  # from a copy
    assert {sample.reason for sample in images.bad} == {"it changed after the data set was opened"}


def test_copies_and_decoded_pixels_stay_within_one_limit(tmp_path, monkeypatch):
    """More shards than are held at a time, which fit alone, and not beside their pixels."""
    images = pictures(60)
    files = {f"part-{n:02d}.tar": as_tar(images[3 * n : 3 * n + 3], 3 * n) for n in range(20)}
    shards, pixels = sum(map(len, files.values())), 60 * 3 * 32 * 32
    limit = shards + pixels // 2
    monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", str(limit))
    with in_memory(files) as address:
        there = opened(address, tmp_path / "a")
        taken = sum(f.stat().st_size for f in (tmp_path / "a").glob("*/*") if f.parent.name not in ("index", "content"))
        assert list((tmp_path / "a").glob("*/pixels.bin")) and taken <= limit
    assert facts(there) == facts(opened(on_disk(tmp_path / "data", files), tmp_path / "b"))


def test_a_folder_of_folders_says_which_files_there_are(tmp_path):
    names = [f"data/{split}-{n:05d}-of-00002.parquet" for split in ("train", "test") for n in range(2)]
    files = {"README.md": b"x"} | dict.fromkeys(names, TABLES["part-0.parquet"])
    with in_memory(files) as address, pytest.raises(DataError) as error:
        opened(address, tmp_path)
    assert "give memory:///far/data/test-*.parquet or memory:///far/data/train-*.parquet" in str(error.value)


def test_a_file_system_without_its_library_names_it(tmp_path):
    if importlib.util.find_spec("s3fs") is not None:
        pytest.skip("NOT RUN: s3fs is installed, so its absence cannot be tried")
    with pytest.raises(DataError, match=r"s3://b/c\.tar.*pip install s3fs"):
        opened("s3://b/c.tar", tmp_path)
    with pytest.raises(DataError, match=r"unknown protocol 'warp'; allowed: s3, gs"):
        opened("warp://b/c.tar", tmp_path)
    with pytest.raises(DataError, match="pip install s3fs"):
        require_data("simplecache::s3://b/c.tar")  # before torch is loaded


def test_a_folder_without_shards_or_with_two_kinds_is_refused(tmp_path):
    with (
        in_memory({"readme.md": b"x"}) as address,
        pytest.raises(DataError, match=r"is no \.parquet or \.tar file, and no folder"),
    ):
        opened(address, tmp_path)
    with in_memory(TARS | TABLES) as address, pytest.raises(DataError, match=r"holds \.parquet and \.tar files"):
        opened(address, tmp_path)


def test_an_empty_shard_among_others_is_no_error(tmp_path):
    files = TARS | {"part-003.tar": as_tar([])}
    with in_memory(files) as address:
        assert facts(opened(address, tmp_path / "a")) == facts(opened(on_disk(tmp_path / "d", files), tmp_path / "b"))


def test_a_folder_that_hugging_face_saved(tmp_path):
    """Written by datasets 5.2.0: five images in two files, and two splits."""
    folder = Path(__file__).parent / "saved_to_disk"
    images = opened(folder / "train", tmp_path)
    assert images.class_names == CLASSES and images.labels.tolist() == [0, 1, 2, 0, 1]
    assert list(images.paths)[3] == "data-00001-of-00002.arrow/00000000"
    assert [images.get([i]).pixels[0].shape for i in range(5)] == [(3, 5, 6 + i % 2) for i in range(5)]
    assert images.get([4]).pixels[0][:, 0, 0].tolist() == [160, 10, 80]
    with pytest.raises(DataError, match=r"holds the splits test, train; name one, such as .*test"):
        opened(folder, tmp_path)
    (tmp_path / "bad.arrow").write_bytes(b"nonsense")
    with pytest.raises(DataError, match=r"bad\.arrow is not a readable Arrow file"):
        opened(tmp_path / "bad.arrow", tmp_path)


# --- one run from three places ---


def run(data, out, cache, **environment):
    words = ["pretrain", str(data), "--out", str(out), "--recipe", "demo", "--max-steps", "6", "--batch-size", "8"]
    words += ["--log-every", "1", "--patch-size", "8", "--seed", "3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ECHOLESS_CACHE": str(cache), **environment}
    done = subprocess.run([sys.executable, "-m", "echoless", *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    evaluated = ["evaluate", str(out), "--train", str(data), "--metrics", "knn", "rank", "--no-baselines", "--json"]
    told = subprocess.run(
        [sys.executable, "-m", "echoless", *evaluated], capture_output=True, text=True, env=environment
    )
    assert told.returncode == 0, told.stderr
    return numbers(out, told.stdout)


def numbers(out, told):
    """Every logged number and every measured one, and the weights."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [{key: line.get(key) for key in ("step", "loss", "lr", "gradient_norm")} for line in lines]
    measured = [(each["metric"], each["value"]) for each in map(json.loads, told.splitlines())]
    return steps, measured, (out / "encoder" / "model.safetensors").read_bytes()


IN_MEMORY = """
import sys, fsspec
from pathlib import Path
for file in Path(sys.argv[1]).iterdir():
    fsspec.filesystem("memory").pipe_file(f"/far/{file.name}", file.read_bytes())
from echoless.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


def run_from_memory(folder, out, cache):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ECHOLESS_CACHE": str(cache)}
    words = ["pretrain", "memory://far/*.tar", "--out", str(out), "--recipe", "demo", "--max-steps", "6"]
    words += ["--batch-size", "8", "--log-every", "1", "--patch-size", "8", "--seed", "3"]
    evaluated = ["evaluate", str(out), "--train", "memory://far/*.tar", "--metrics", "knn", "rank", "--no-baselines"]
    command = [sys.executable, "-c", IN_MEMORY, str(folder)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    told = subprocess.run([*command, *evaluated, "--json"], capture_output=True, text=True, env=environment)
    assert told.returncode == 0, told.stderr
    return numbers(out, told.stdout)


@web
@pytest.mark.slow
def test_the_same_run_from_disk_from_a_lossy_web_server_and_from_memory(tmp_path):
    images = pictures(48)
    tars = {f"part-{n:03d}.tar": as_tar(images[16 * n : 16 * n + 16], 16 * n) for n in range(3)}
    table = on_disk(tmp_path / "table", {"images.parquet": as_parquet(images)}) / "images.parquet"
    local = run(table, tmp_path / "local", tmp_path / "c1")
    with served(tars, every=10) as server:
        address = f"{server.address}/part-{{000..002}}.tar"
        web_run = run(address, tmp_path / "web", tmp_path / "c2", ECHOLESS_CACHE_LIMIT="100K")
        assert server.lost > 0
        lost, requests = server.lost, server.requests
    memory = run_from_memory(on_disk(tmp_path / "shards", tars), tmp_path / "memory", tmp_path / "c3")
    assert local == web_run == memory
    print(f"parquet on disk, tar shards by HTTP ({lost} of {requests} requests lost), memory: equal in every bit;")
    print("last loss", local[0][-1]["loss"], "measured", local[1])


@web
@pytest.mark.slow
def test_a_server_that_goes_away_while_a_run_trains_costs_nothing(tmp_path, monkeypatch, capfd):
    """Images are read from afar; the run ends with one sentence, and resumed it is the undisturbed one in every bit."""
    monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", str(max(map(len, TARS.values())) + 1000))
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(patience, "PAUSES", (0.01,))
    options = ["--recipe", "demo", "--max-steps", "60", "--batch-size", "8", "--patch-size", "8"]
    options += ["--log-every", "1", "--checkpoint-every", "5"]
    local = str(on_disk(tmp_path / "data", TARS))
    assert main(["pretrain", local, "--out", str(tmp_path / "whole"), *options]) == 0
    with served(TARS) as server:
        train = ["pretrain", f"{server.address}/part-{{000..002}}.tar", "--out", str(tmp_path / "run"), *options]

        def lose() -> None:
            while not (tmp_path / "run" / "checkpoints" / "step-00000005").exists():
                time.sleep(0.01)
            server.every = 1

        loser = threading.Thread(target=lose)
        loser.start()
        assert main(train) == 2
        loser.join()
        said = capfd.readouterr().err
        assert "(2 attempts in 0 s); what was fetched is kept" in said and "Traceback" not in said
        assert not (tmp_path / "run" / "encoder").exists()
        server.every = 10
        assert main([*train, "--resume"]) == 0
    weights = [tmp_path / name / "encoder" / "model.safetensors" for name in ("whole", "run")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
