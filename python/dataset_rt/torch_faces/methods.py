"""The methods of CachedDataset that give PyTorch what it takes; import PyTorch when called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Unpack

from dataset_rt.arguments import to_count
from dataset_rt.torch_faces.pytorch import torch_face

if TYPE_CHECKING:
    from dataset_rt.torch_faces.dataset_loader import DatasetLoader
    from dataset_rt.torch_faces.loader_arguments import LoaderOptions
    from dataset_rt.torch_faces.sample_stream import SampleStream


class TorchFaces:
    """PyTorch's ways to read a dataset, besides `DataLoader(dataset)`, which takes it as it is."""

    def to_torch_iterable_dataset(self, batch_size: int | None = None) -> SampleStream:
        """Return an `IterableDataset` that reads one epoch of this dataset.

        It reads the epoch last given to `set_epoch`, here or on it, also in workers that persist,
        and never advances by itself. `DataLoader(stream, batch_size=None)` gives the global order
        for any number of workers. A `DataLoader` that makes batches of single samples itself
        gives each sample exactly once, in an order that depends on its number of workers.
        torchdata's `StatefulDataLoader` resumes it exactly, at an equal number of workers.

        Args:
            batch_size: `None` yields single samples. Else whole batches, lists of so many samples
                of this rank, in global order: for `DataLoader(stream, batch_size=None)`. Every
                rank gives equally many; the last ones may be shorter, or `[]`.

        Raises:
            ImportError: PyTorch is not there.
            InvalidInputError: `batch_size` is below 1, or is not this rank's part of the global
                batch.
        """
        face = torch_face("sample_stream", "to_torch_iterable_dataset")
        size = None if batch_size is None else to_count(batch_size, "batch_size", minimum=1)
        stream: SampleStream = face.SampleStream(self, size)
        len(stream)  # refuses a batch size that the share has no use for
        return stream

    def to_torch_dataloader(
        self,
        *,
        batch_size: int = 1,
        transform: Callable[..., Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        samples_per_epoch: int | None = None,
        shuffle: bool | None = None,
        seed: int | None = None,
        drop_last: bool = False,
        num_workers: int | Literal["auto"] = "auto",
        native_num_workers: int | Literal["auto"] = "auto",
        rank: int | None = None,
        world_size: int | None = None,
        position_seeds: bool = False,
        **options: Unpack[LoaderOptions],
    ) -> DatasetLoader:
        """Return a `torch.utils.data.DataLoader` that delivers the global order.

        Its batches are the same for any number of workers, however they are started, persistent
        or not. Each `iter(loader)` reads the next epoch. It has a `state_dict` of its own that
        counts the batches the trainer took. The loader has a dataset of its own
        (`loader.dataset`), which starts with this one's table, epoch and place in the stream.

        Args:
            batch_size: Samples of this rank in a batch. Every rank gives equally many batches; a
                rank without a sample in the last one gives `[]`, without calling `collate_fn`.
            transform: Called with each `CachedSample` where it is read, in a worker if there are
                any; what it returns takes the sample's place.
            collate_fn: Makes a batch of a list of samples, as in `DataLoader`: `None` is PyTorch's
                `default_collate` (a `CachedSample` of a tuple of payloads, a dict of tensors and
                two tensors of identities; no nulls, dates or timestamps), `list` gives lists.
            samples_per_epoch: As `set_epoch_len`, of all ranks together.
            shuffle: In place of `ReaderConfig.shuffle`, for this loader.
            seed: In place of `ReaderConfig.seed`, for this loader.
            drop_last: Leave out a short batch at the end of an epoch, on all ranks alike.
            num_workers: Worker processes. `"auto"`: none without `transform` and `collate_fn`,
                else this rank's part of the usable CPUs (affinity and container limits, divided
                by `LOCAL_WORLD_SIZE`) less one, at most 16; at least one with options that only
                workers have.
            native_num_workers: Native threads of each process that reads. `"auto"`: those of this
                dataset's runtime without workers, this rank's part of the CPUs with one worker, 1
                with several.
            rank: As in `partition`; `None` for both reads this dataset, be it whole or a share.
            world_size: As in `partition`.
            position_seeds: Call `transform(sample, seed)` with `position_seed` of the sample's
                position in the stream, for augmentations that do not depend on ranks and workers.
            **options: Further arguments of `DataLoader`, by their own names. `sampler` and
                `batch_sampler` are refused: the order is the dataset's.

        Raises:
            ImportError: PyTorch is not there.
            TypeError: An argument has the wrong type, or `DataLoader` does not know it.
            InvalidInputError: An argument is out of range, contradicts another, or cannot be sent
                to workers of the start method (a lambda, for example).
        """
        face = torch_face("loader_arguments", "to_torch_dataloader")
        loader: DatasetLoader = face.make_loader(
            self,
            batch_size=batch_size,
            transform=transform,
            collate_fn=collate_fn,
            samples_per_epoch=samples_per_epoch,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            num_workers=num_workers,
            native_num_workers=native_num_workers,
            rank=rank,
            world_size=world_size,
            position_seeds=position_seeds,
            options=dict(options),
        )
        return loader
