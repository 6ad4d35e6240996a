"""Caches of format version 0 stay readable, and the writer still makes the same bytes."""

import importlib.util
import json
import math
from pathlib import Path

import pytest
from conftest import sealed
from plain_blake3 import blake3

from dataset_rt import ReaderConfig, open_cache, open_dataset, verify_cache

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
_spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)

NAMES = sorted(make.CACHES)


def files(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def same(a, b):
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


# test_conformance.py has the others: their source yields batches.
BY_SAMPLE = [name for name in NAMES if not name.startswith("every_type")]


@pytest.mark.parametrize("name", BY_SAMPLE)
def test_a_golden_cache_holds_what_it_was_made_of(name):
    kind, _ = make.CACHES[name]
    expected = list(kind(name))
    found = list(open_dataset(make.ROOT / name))
    assert len(found) == len(expected)
    for sample, (data, metadata) in zip(found, expected, strict=True):
        assert sample.data == data
        assert list(sample.metadata) == list(metadata)
        for key, value in metadata.items():
            assert same(sample.metadata[key], value), key


@pytest.mark.parametrize("name", NAMES)
def test_digests_of_a_golden_cache_are_plain_blake3(name):
    found = files(make.ROOT / name)
    text = found["manifest.json"].decode()
    assert sealed(text) == text
    manifest = json.loads(text)
    named = [manifest[key] for key in ("metadata", "index", "dictionary", "digests")]
    for entry in [*manifest["shards"], *filter(None, named)]:
        assert blake3(found[entry["path"]]) == entry["blake3"], entry["path"]


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_cache_obeys_the_format(name):
    report = verify_cache(make.ROOT / name, level="deep")
    assert report.ok, report.findings


def test_golden_caches_of_one_source_are_one_content():
    ids = {}
    for name, (kind, _) in make.CACHES.items():
        ids.setdefault(kind, set()).add(open_cache(make.ROOT / name).cache_id)
    assert {len(found) for found in ids.values()} == {1}
    assert len(set.union(*ids.values())) == len(ids)


def test_the_writer_still_makes_the_same_bytes(tmp_path):
    make.write(tmp_path)
    for name in NAMES:
        assert files(tmp_path / name) == files(make.ROOT / name), name
    assert sorted(path.name for path in make.ROOT.iterdir()) == NAMES


def test_cells_are_those_of_the_sources(tmp_path):
    make.write_cells(tmp_path / "cells")
    assert files(tmp_path / "cells") == files(make.CELLS)


def test_golden_caches_have_every_layout():
    found = {}
    for name in NAMES:
        manifest = open_cache(make.ROOT / name).manifest
        compression = manifest["compression"]
        layout = compression["algo"], compression["scope"], manifest["dictionary"] is not None
        found.setdefault(layout, []).append(name)
    assert set(found) == {
        ("none", "payload", False),
        ("lz4", "payload", False),
        ("zstd", "payload", False),
        ("zstd", "payload", True),
        ("lz4", "buffer", False),
        ("zstd", "buffer", False),
    }
    for name in ("small_shards", "no_columns"):
        assert len(open_cache(make.ROOT / name).shards()) > 1
    assert open_cache(make.ROOT / "empty_payloads").manifest["payload_bytes_total"] == 0


def test_the_order_of_a_golden_cache_is_pinned():
    dataset = open_dataset(make.ROOT / "plain", seed=42, shuffle=True)
    assert isinstance(dataset.reader_config, ReaderConfig)
    found = [sample.sample_id for sample in dataset]
    pinned = (GOLDEN / "order_seed_42.txt").read_text().split()
    assert found == [int(value) for value in pinned]
