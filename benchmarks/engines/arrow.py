"""Rows to Arrow batches and back, for peers that speak Arrow."""

import pyarrow as pa

SCHEMA = pa.schema(
    {
        "payload": pa.large_binary(),
        "label": pa.int64(),
        "score": pa.float64(),
        "split": pa.string(),
    }
)


def to_batches(samples, rows):
    """Record batches of `rows` rows each."""
    columns = payloads, labels, scores, splits = [], [], [], []
    for data, metadata in samples:
        payloads.append(data)
        labels.append(metadata["label"])
        scores.append(metadata["score"])
        splits.append(metadata["split"])
        if len(payloads) == rows:
            yield pa.record_batch(list(columns), schema=SCHEMA)
            for column in columns:
                column.clear()
    if payloads:
        yield pa.record_batch(list(columns), schema=SCHEMA)


def to_samples(batch):
    """Samples of a batch or table, made column by column."""
    columns = (batch.column(name).to_pylist() for name in SCHEMA.names)
    for data, label, score, split in zip(*columns, strict=True):
        yield data, {"label": label, "score": score, "split": split}
