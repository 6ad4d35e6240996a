"""What a report says, as values: plain data that `collect` fills and `page` draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dataset_rt.inspection.caches import Anatomy
from dataset_rt.inspection.draws import Due
from dataset_rt.inspection.integrity import Integrity
from dataset_rt.inspection.kinds import Kinds
from dataset_rt.inspection.lengths import Lengths
from dataset_rt.inspection.words import in_words
from dataset_rt.text import counted, ranges_text


@dataclass(frozen=True, slots=True)
class Missing:
    """A part of a report that could not be collected, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values lie between which edges; exact.

    Attributes:
        edges: Texts of the edges, one more than bins; a bin has its begin, the last its end, too.
        counts: Values in each bin.
        below: Values below the first edge, as outliers.
        above: Values above the last edge, likewise.
        last_width: Width of the last bin, where all others have 1.
    """

    edges: list[str]
    counts: list[int]
    below: int = 0
    above: int = 0
    last_width: float = 1.0


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column, its values as texts.

    Attributes:
        name: Name of the column.
        type: Its Arrow type.
        rows: Rows read.
        nulls: Nulls among them.
        nans: Floats among them that are no number.
        infinite: Floats among them that are infinite.
        distinct: Distinct values, or `None` for more than are told apart.
        min: Smallest value, if there is any.
        max: Largest value.
        mean: Mean of numbers.
        top: The most frequent values and their counts; none where each is as rare as the next.
        histogram: Of numbers, dates and times that are many.
    """

    name: str
    type: str
    rows: int
    nulls: int
    nans: int
    infinite: int
    distinct: int | None
    min: str | None
    max: str | None
    mean: str | None
    top: list[tuple[str, int]]
    histogram: Histogram | None

    @property
    def values(self) -> int:
        """Values that are neither null nor NaN."""
        return self.rows - self.nulls - self.nans


@dataclass(frozen=True, slots=True)
class ColumnsFacts:
    """The columns that were read.

    Attributes:
        columns: In the order of the cache.
        left_out: Columns beyond the bound that nobody named.
        rows_lost: Rows that damage keeps from being read.
    """

    columns: list[ColumnFacts]
    left_out: int
    rows_lost: int


@dataclass(frozen=True, slots=True)
class ClassShare:
    """What one value of a column has of the rows and of the draws, and what is due, if anything."""

    value: str
    stored: int
    drawn: int
    share_stored: float
    share_expected: float | None
    share_drawn: float


@dataclass(frozen=True, slots=True)
class DrawFacts:
    """What a training stream with these settings would see.

    Attributes:
        by: Column whose values are the classes, if any.
        why: Why this one, or why none.
        weights: Where the weights are from, in words.
        due: By what shares are due, as `inspection.draws.due_by` says.
        sampling: How positions become rows.
        seed: Of the order.
        rows: Rows of the table.
        drawn: Samples really drawn, from the beginning of the first epoch.
        rows_drawn: Different rows among them.
        most_often: How often the row was drawn that was drawn most.
        of_lost: How many draws are of samples that damage has cost; `None` if nobody knows.
        shares: Of the largest classes.
        others: Classes that are not among `shares`, summed up as the last of them.
    """

    by: str | None
    why: str
    weights: str
    due: Due
    sampling: str
    seed: int
    rows: int
    drawn: int
    rows_drawn: int
    most_often: int
    of_lost: int | None
    shares: list[ClassShare]
    others: int


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that may be embedded: never anything but pixels.

    Attributes:
        mime: `image/png` and the like, as its bytes say.
        content: Bytes of the file.
        width: Of the payload's picture, in pixels.
        height: Likewise.
    """

    mime: str
    content: bytes
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class PayloadFacts:
    """One payload as far as it is shown.

    Attributes:
        size_bytes: Its length.
        kind: What it looks like.
        picture: Of an image.
        text: Beginning of a text.
        head: First bytes of anything else.
        note: Why no picture is shown where one was expected, or why nothing could be read.
    """

    size_bytes: int | None = None
    kind: str = "unreadable"
    picture: Picture | None = None
    text: str | None = None
    head: bytes = b""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """One sample.

    Attributes:
        sample_id: Row in the cache.
        metadata: Names and values of its columns, as texts; `None` where damage hides them.
        payload: What its payload looks like.
    """

    sample_id: int
    metadata: list[tuple[str, str]] | None
    payload: PayloadFacts


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """All of one report.

    Attributes:
        anatomy: Manifest and files.
        integrity: What a verification found.
        columns: Statistics and distributions.
        lengths: Payload sizes.
        sizes: Payload sizes in detail.
        kinds: What payloads look like.
        draws: Weights and drawn shares.
        samples: Some samples.
    """

    anatomy: Anatomy
    integrity: Integrity
    columns: ColumnsFacts | Missing
    lengths: Lengths | Missing
    sizes: Histogram | None
    kinds: Kinds | Missing
    draws: DrawFacts | Missing
    samples: list[SampleFacts] | Missing

    @property
    def manifest(self) -> dict[str, Any]:
        """What is known of the manifest."""
        return self.anatomy.manifest

    def troubles(self) -> list[str]:
        """Return what is wrong with the cache, one sentence each; none if nothing was found."""
        parts = (self.columns, self.lengths, self.kinds, self.draws, self.samples)
        lost = self.integrity.lost() or []
        number = sum(stop - start for start, stop in lost)
        found = [f"lost {counted(number, 'sample')}: {ranges_text(lost)}"] if lost else []
        found += [in_words(str(finding)) for finding in self.integrity.report.findings]
        found += [part.reason for part in parts if isinstance(part, Missing)]
        if isinstance(self.samples, list):
            # Those that are lost are named already.
            found += [
                f"sample {sample.sample_id}: {sample.payload.note}"
                for sample in self.samples
                if sample.payload.size_bytes is None
                and sample.payload.note
                and not any(start <= sample.sample_id < stop for start, stop in lost)
            ]
        return list(dict.fromkeys(found))
