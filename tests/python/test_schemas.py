"""Every written cache obeys the published schemas; the rule lists of code and document agree."""

import json
import re
from pathlib import Path

import jsonschema
import pyarrow as pa
import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = sorted(path for path in (ROOT / "tests/golden/v0").iterdir() if path.is_dir())
ARROW = json.loads((ROOT / "schemas/arrow.v0.json").read_text())


def marks(schema):
    return {key.decode(): value.decode() for key, value in schema.metadata.items()}


@pytest.mark.parametrize("cache", GOLDEN, ids=lambda path: path.name)
def test_manifests_obey_their_schema(cache):
    schema = json.loads((ROOT / "schemas/manifest.v0.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads((cache / "manifest.json").read_text()), schema)


def test_the_schema_refuses_unknown_fields():
    schema = json.loads((ROOT / "schemas/manifest.v0.schema.json").read_text())
    manifest = json.loads((GOLDEN[0] / "manifest.json").read_text()) | {"extra": 1}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, schema)


@pytest.mark.parametrize("cache", GOLDEN, ids=lambda path: path.name)
def test_arrow_files_obey_their_schema(cache):
    metadata = pa.ipc.open_file(cache / "metadata.arrow").schema
    assert marks(metadata) == ARROW["metadata"]["metadata"]
    for shard in (cache / "shards").iterdir():
        schema = pa.ipc.open_file(shard).schema
        first, last = schema.field(0), schema.field(len(schema) - 1)
        assert (first.name, str(first.type), first.nullable) == ("sample_id", "uint64", False)
        assert (last.name, str(last.type), last.nullable) == ("payload", "large_binary", False)
        assert schema.names[1:-1] == metadata.names
        for field in list(schema)[1:-1]:
            assert str(field.type).split("[")[0] in {
                name.split("[")[0] for name in ARROW["stored_types"]
            }
        for key, allowed in ARROW["shard"]["metadata"].items():
            if key in marks(schema):
                assert marks(schema)[key] in allowed or isinstance(allowed, str)


def test_rule_ids_of_document_and_validator_agree():
    document = (ROOT / "docs/format/v0.md").read_text()
    rules = (ROOT / "crates/validator/src/cache/rules.rs").read_text()
    in_document = re.findall(r"\*\*\[([A-Z]\d\d)\]\*\*", document)
    in_code = re.findall(r'rule\(\s*"([A-Z]\d\d)"', rules)
    assert len(in_document) == len(set(in_document))
    assert sorted(in_document) == sorted(in_code)
