"""`sample`: preview of a draw: which classes a training stream would see, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.console import bar, line, paragraph, show, show_json, styled, table
from dataset_rt.cli.options import (
    BalanceOption,
    CachesArgument,
    JsonOption,
    SamplingOption,
    SeedOption,
    WeightByOption,
    complete_columns,
    require_column,
)
from dataset_rt.cli.progress import counting
from dataset_rt.errors import InvalidInputError
from dataset_rt.text import count, counted, path_text, share, value_text

if TYPE_CHECKING:
    import polars as pl

    from dataset_rt.dataset import CachedDataset
    from dataset_rt.inspection.draws import Due

_CLASSES_SHOWN = 24
_BAR_CELLS = 20


def sample(  # noqa: PLR0917 - options have names
    caches: CachesArgument,
    n: Annotated[
        int | None,
        typer.Option("-n", metavar="N", min=1, help="Samples to draw [default: one epoch]."),
    ] = None,
    seed: SeedOption = 0,
    sampling: SamplingOption = "multinomial",
    balance: BalanceOption = None,
    weight_by: WeightByOption = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="Show shares of the values of this column; by default that of --balance.",
            autocompletion=complete_columns,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Preview a weighted draw: which classes would come how often.

    Draws exactly what a CachedDataset with these settings reads in its first epoch, and shows the
    shares of classes as stored, as expected, and as drawn. Expected is what the weights ask for;
    where a sampling takes each row once an epoch, it is the share of the rows. No payload is read.
    """
    from dataset_rt.inspection.draws import draw, due_by  # noqa: PLC0415 - Polars
    from dataset_rt.runtime import open_dataset  # noqa: PLC0415 - Polars and pydantic

    if balance is not None and weight_by is not None:
        raise typer.BadParameter("give --balance or --weight-by, not both")
    dataset = open_dataset(caches, seed=seed, shuffle=True, sampling=sampling)
    _weigh(dataset, balance, weight_by)
    column = balance if by is None else by
    metadata = dataset.get_metadata()
    if column is not None:
        require_column(column, _stored(metadata))
    if n is not None:
        dataset.set_epoch_len(n)
    with counting("drawing", len(dataset)) as on_progress:
        drawn = draw(dataset, metadata, on_progress)
    due = due_by(
        dataset.reader_config,
        metadata.height,
        len(dataset),
        is_equal=metadata["weight"].min() == metadata["weight"].max(),
    )
    document = {
        "caches": [str(path) for path in dataset.cache_paths],
        "seed": seed,
        "sampling": sampling,
        "balance": balance,
        "weight_by": weight_by,
        "by": column,
        "order_fingerprint": dataset.order_fingerprint,
        "rows": metadata.height,
        "drawn": len(dataset),
        "rows_drawn": int((drawn > 0).sum()),
        "most_often": int(drawn.max() or 0),  # type: ignore[arg-type]
        "expected_by": due,
        "shares": None if column is None else _shares(metadata, drawn, column, due),
    }
    if as_json:
        show_json(document)
    else:
        show(*_drawn(document))


def _shares(table: pl.DataFrame, drawn: pl.Series, column: str, due: Due) -> list[dict[str, Any]]:
    from dataset_rt.inspection.draws import shares_of  # noqa: PLC0415 - Polars
    from dataset_rt.inspection.values import plain_value  # noqa: PLC0415 - Polars

    dtype = table.schema[column]
    shares = shares_of(table, drawn, column, due)
    return [one | {"value": plain_value(one["value"], dtype)} for one in shares]


def _weigh(dataset: CachedDataset, balance: str | None, weight_by: str | None) -> None:
    from dataset_rt.inspection.draws import weigh  # noqa: PLC0415 - Polars

    name = weight_by if balance is None else balance
    if name is None:
        return
    table = dataset.get_metadata()
    require_column(name, _stored(table))
    dtype = table.schema[name]
    if weight_by is not None and not dtype.is_numeric():
        raise typer.BadParameter(f"--weight-by {name}: it holds {dtype}, not numbers")
    try:
        weigh(dataset, balance, weight_by)
    except InvalidInputError as error:
        raise InvalidInputError(f"--weight-by {name}: {error}") from error


def _stored(table: pl.DataFrame) -> list[str]:
    return [name for name in table.columns if name not in {"cache_id", "sample_id", "weight"}]


def _drawn(document: dict[str, Any]) -> list[RenderableType]:
    from dataset_rt.inspection.draws import due_words, rows_words  # noqa: PLC0415 - Polars

    weights = "all weights equal"
    if document["balance"]:
        weights = f"balanced by {document['balance']}"
    elif document["weight_by"]:
        weights = f"weights from {document['weight_by']}"
    rows = rows_words(*(document[key] for key in ("rows", "rows_drawn", "drawn", "most_often")))
    sampling = document["sampling"]
    is_weighed = document["balance"] or document["weight_by"]
    remark = due_words(sampling, document["expected_by"]) if is_weighed else ""
    parts: list[RenderableType] = [
        line(
            (", ".join(path_text(path) for path in document["caches"]), "bold"),
            f"  {counted(document['drawn'], 'sample')} drawn, {weights}",
        ),
        line((f"  seed {document['seed']}, {sampling}; {rows}", "dim")),
    ]
    if remark:
        parts.append(paragraph(remark, "yellow"))
    if document["shares"] is None:
        return [
            *parts,
            Text(),
            line(("  shares of classes: --by COLUMN or --balance COLUMN", "dim")),
        ]
    return [*parts, Text(), *_shares_table(document["shares"], document["by"])]


def _shares_table(shares: list[dict[str, Any]], column: str) -> list[RenderableType]:
    largest = max(max(entry["share_drawn"], entry["share_stored"]) for entry in shares)
    rows = [
        (
            value_text(entry["value"], 28),
            count(entry["stored"]),
            share(entry["share_stored"]),
            "" if entry["share_expected"] is None else share(entry["share_expected"]),
            share(entry["share_drawn"]),
            styled(bar(entry["share_drawn"] / largest, _BAR_CELLS), "blue"),
        )
        for entry in shares[:_CLASSES_SHOWN]
    ]
    name = value_text(column, 28)
    # A column without heading is left out when it is empty.
    expected = "" if shares[0]["share_expected"] is None else ">expected"
    headings = (name, ">samples", ">stored", expected, ">drawn", "")
    parts = [table(headings, rows, flexible=(name,))]
    if len(shares) > _CLASSES_SHOWN:
        parts.append(
            line((f"  and {count(len(shares) - _CLASSES_SHOWN)} more values: --json", "dim"))
        )
    return parts
