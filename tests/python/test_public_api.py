"""Every public name has its place on the pages of the Python API, and a complete docstring."""

import inspect
import re
import types
import zlib

import pytest
from pages import ROOT

import dataset_rt
from dataset_rt import exporters, plotting, sources

API = ROOT / "docs/api"
INVENTORY = ROOT / "target/site/objects.inv"
ENTRY = re.compile(r"^::: dataset_rt\.(\S+)", re.MULTILINE)
SECTIONS = re.compile(
    r"^(Args|Attributes|Returns|Yields|Raises|Source|Example):\n(.*?)(?=^\S|\Z)",
    re.DOTALL | re.MULTILINE,
)
FIELD = re.compile(r"^    (\*{0,2}\w+)(?: \(.*\))?:", re.MULTILINE)
# Calls that refuse arguments.
CHECKS = re.compile(r"^\s*raise |(?<!def )\bto_(?:count|integer|names|json)\(", re.MULTILINE)
# Constructors that are for us alone say what to use instead, those of protocols nothing.
NOT_CALLED = re.compile(r"^$|^Refuse|; use `")
# Where somebody begins: these show how they are used.
ENTRY_POINTS = {
    "ArrowSource",
    "Cache",
    "CacheSource",
    "CachedDataset",
    "CachedDataset.get_metadata",
    "CachedDataset.iter_batches",
    "CachedDataset.load_state_dict",
    "CachedDataset.partition",
    "CachedDataset.save_state",
    "CachedDataset.scan",
    "CachedDataset.state_dict",
    "CachedDataset.to_arrow",
    "CachedDataset.update_metadata",
    "DatasetRuntime",
    "DatasetRuntime.cached_dataset",
    "DatasetRuntime.from_cache_sources",
    "DatasetRuntime.write_cache",
    "HasIterFrom",
    "HasTransform",
    "ReaderConfig",
    "WriterConfig",
    "exporters.materialize",
    "exporters.to_parquet",
    "exporters.to_webdataset",
    "open_cache",
    "open_dataset",
    "payload_array",
    "payload_arrays",
    "repair_cache",
    "salvage_cache",
    "sources.CsvSource",
    "sources.ImageFolderSource",
    "sources.ParquetSource",
    "sources.WebDatasetSource",
    "unfinished_writes",
    "verify_cache",
}


def public_names():
    """Every public name, by its path behind `dataset_rt`."""
    found = {}
    for module in (dataset_rt, exporters, plotting, sources):
        prefix = f"{module.__name__}.".removeprefix("dataset_rt.")
        for name in module.__all__:
            value = getattr(module, name)
            if prefix and getattr(dataset_rt, name, None) is value:
                continue
            found[prefix + name] = value
    return found


def public_members():
    return {
        f"{path}.{name}": member
        for path, value in public_names().items()
        if isinstance(value, type)
        for name, member in members_of(value)
    }


def members_of(cls):
    """Public methods and properties that our classes define, inherited ones of ours included."""
    for base in cls.__mro__:
        if base.__module__.startswith("dataset_rt"):
            for name, member in vars(base).items():
                is_called = isinstance(
                    member, (types.FunctionType, property, classmethod, staticmethod)
                )
                if is_called and not name.startswith("_"):
                    yield name, getattr(cls, name) if not isinstance(member, property) else member


# Names for types: they have no docstring of their own. The page takes what stands below them.
ALIASES = {
    "BytesLike",
    "CacheSourcesDatasetResult",
    "CacheWriteResult",
    "CompressionAlgo",
    "Metadata",
    "MetadataValue",
}
MEMBERS = public_members()
PUBLIC = public_names() | MEMBERS
CALLED = {
    path: value
    for path, value in PUBLIC.items()
    if inspect.isfunction(value) or inspect.ismethod(value)
}


def sections(docstring):
    return dict(SECTIONS.findall(inspect.cleandoc(docstring or "")))


def fields(text):
    return set(FIELD.findall(text))


def entries():
    return [
        (page.name, name)
        for page in sorted(API.glob("*.md"))
        for name in ENTRY.findall(page.read_text())
    ]


def test_fields_of_named_tuples_are_told_by_help():
    for cls in CLASSES.values():
        for name in getattr(cls, "_fields", ()):
            told = getattr(cls, name).__doc__
            assert told, (cls, name)
            assert not told.startswith("Alias for"), (cls, name)


def test_every_public_name_has_one_entry():
    named = [name for _, name in entries() if not name.startswith("torch_faces.")]
    assert sorted(named) == sorted({*named}), "an entry is on two pages"
    # Methods that have a page of their own.
    faces = {"CachedDataset.to_torch_dataloader", "CachedDataset.to_torch_iterable_dataset"}
    top = {path for path in PUBLIC if path not in MEMBERS}
    assert {*named} == (top | faces) - {"__version__"}


def test_the_first_page_lists_every_entry():
    index = (API / "index.md").read_text()
    listed = re.findall(r"\((\w+\.md)#dataset_rt\.([\w.]+)\)", index)
    assert sorted(listed) == sorted(entries())


@pytest.mark.skipif(not INVENTORY.exists(), reason="the site is not built: see make docs")
def test_every_public_member_is_on_the_built_pages():
    # Four lines of text, then one line for each name that the site has a place for.
    head = rb"(?:[^\n]*\n){4}"
    lines = zlib.decompress(re.sub(head, b"", INVENTORY.read_bytes(), count=1)).decode()
    places = {line.split(" ")[0].removeprefix("dataset_rt.") for line in lines.splitlines()}
    assert {*PUBLIC} - places - {"__version__"} == set()


@pytest.mark.parametrize("path", sorted(PUBLIC.keys() - {"__version__"}))
def test_every_public_name_says_what_it_is(path):
    value = PUBLIC[path]
    if path in ALIASES:
        return
    docstring = inspect.getdoc(value)
    assert docstring, "no docstring"
    assert not docstring.startswith(("Alias for", "Usage docs")), "an inherited docstring"
    first = docstring.splitlines()[0]
    assert re.fullmatch(r"[`A-Z0-9].{10,}[.:]", first), first
    if path in ENTRY_POINTS:
        assert ">>> " in sections(docstring).get("Example", ""), "no example"


@pytest.mark.parametrize("path", sorted(CALLED))
def test_every_call_says_what_it_takes_and_gives(path):
    call = CALLED[path]
    signature = inspect.signature(call)
    told = sections(call.__doc__)
    summary = call.__doc__.split("\n\n")[0]
    taken = [p for p in signature.parameters.values() if p.name != "self"]
    names = {"**" * (p.kind is p.VAR_KEYWORD) + p.name for p in taken}
    if "Args" in told or not all(f"`{name}`" in summary for name in names):
        assert fields(told.get("Args", "")) == names
    assert all(p.annotation is not p.empty for p in taken)
    assert signature.return_annotation is not signature.empty
    if CHECKS.search(inspect.getsource(call)):
        assert "Raises" in told, "what is raised?"
    if signature.return_annotation != "None":
        assert "Returns" in told or summary.startswith(("Return ", "Yield ", "List ")), (
            "what comes?"
        )


CLASSES = {
    path: value
    for path, value in PUBLIC.items()
    if isinstance(value, type) and not issubclass(value, BaseException)
}


@pytest.mark.parametrize("path", sorted(CLASSES))
def test_every_class_says_what_it_holds_and_takes(path):
    cls = CLASSES[path]
    told = sections(cls.__doc__)
    held = getattr(cls, "_fields", None) or getattr(cls, "model_fields", None)
    held = held or getattr(cls, "__dataclass_fields__", None)
    if held:
        assert fields(told.get("Attributes", "")) == set(held)
    elif "__init__" in vars(cls) and not NOT_CALLED.search(cls.__init__.__doc__ or ""):
        taken = {name for name in inspect.signature(cls).parameters if name != "self"}
        assert {name.lstrip("*") for name in fields(told.get("Args", ""))} == taken


def test_the_tour_names_what_there_is():
    tour = dataset_rt.__doc__
    for name in re.findall(r"`(\w+)`", tour):
        assert name in {*dataset_rt.__all__, "exporters", "sources"}, name
