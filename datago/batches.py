"""DatagoBatchDataset: batches of one bucket, which the workers have written in place, as a training step wants them."""

import math
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy

from datago import geometry, hints
from datago.agree import agreed
from datago.batch_arguments import DTYPES, LARGEST, check, check_images, each, other_scale, share, whole
from datago.client import DatagoClient
from datago.dataset import DatagoIterDataset, asking_workers, get_worker_info, torch
from datago.engine._payload import ImagePayload
from datago.engine._sample import SampleBatch, plain_attributes
from datago.labels import names_a_file, numbered, of_attribute, of_folder
from datago.settings import BatchSettings
from datago.sizing import Sizes
from datago.sources import source_type
from datago.sources.planned import PlannedSource
from datago.stepping import Stepping, Way
from datago.trainers import FitLoop
from datago.typed import Batch

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class DatagoBatchDataset(DatagoIterDataset):
    """Iterates over batches of samples that have one size. A torch.utils.data.IterableDataset if torch is installed.

    Args:
        config: as for DatagoClient; its image_config says how pictures get their size: `crop_and_resize`, `random_resized_crop`,
            `resize` to [width, height], `center_crop` or `pad`.
        batch_size: pictures in a batch.
        layout: "NCHW" or "NHWC".
        remainder: "keep" hands out short batches at the end, "drop" drops their samples: counted as skipped, their ids
            in stats()["dropped"] and in the log.
        dtype: "uint8", or "float16", "bfloat16", "float32" (or torch's or numpy's): (x / 255 - mean) / std, rounded once to float32
            accuracy and then to the type.
        mean, std: a number, or one for each channel, of pictures whose values are 0 to 1; 0 and 1 if not given. A mean lies in [0, 1],
            a std in (0, 1] (1/255 gives values on the scale of 0 to 255). Others warn here, and reading raises ValueError.
        channels: 3, or 1 for grey (as Pillow's convert("L") makes it).
        classes: where targets come from. "folder": the first folder below root_path; those that are read, empty ones too, are
            numbered from 0 in the order that torchvision's ImageFolder gives them. So that a part of the classes gets the numbers that
            they have in another folder: its `dataset.classes` or another dict of folder to number, a list of all folders in their order,
            or the path of a file, JSON of either or one name a line (a str that has a slash, or ends in .txt or .json, or is a file). Any
            other str: the name of an attribute, an integer or text of one. A sample without such a class is a failure.
        most_waiting: pictures that may wait in batches that are not full; above that the fullest goes as `remainder` says. None: no
            limit but that of one open batch for each bucket. Planned batches wait for none.
        steps: how ranks take as many batches. "planned": which batch each takes at each step is known before anything is read, and has
            one bucket on all ranks; for folders (shuffled: with a seed). "agreed": they end with the first that has no more; see
            `datago.agreed`. "own": each takes what it has. None: "own" for one rank or one size, else "planned" where it can be, else
            "agreed" where torch.distributed is initialised, else "own" with a warning.
        sizes: of pictures, (width, height) in pixels, upright, where steps are planned: a dict, or a JSON file with one, by paths below the
            root; a function of such a path; an array of shape (n, 2) in the order of the paths' bytes. What is missing, None or 0 is read
            from the headers, once, by all threads.
        sizes_cache: a folder that keeps sizes that were read for later runs and for other ranks. None: they go with this object.
        with_state: each batch has a `state`; see DatagoIterDataset.

    Raises:
        ValueError: an argument or the config is wrong; half of the memory_limit does not hold the batches that may be open and one more.
        SourceError: with `classes` "folder" the root cannot be listed, or has no folder.

    Yields dicts (datago.Batch), everything in the order of the pictures:

        image: tensor (numpy array without torch) of shape (n, channels, height, width) or (n, height, width, channels),
            contiguous; in pinned memory where CUDA is there.
        id, source: lists of str.  attributes: list of dicts.  bucket: (width, height), pixels.
        original_size: list of (width, height), before crop and resize.
        masks, additional_images: dicts of name to what all samples have under it: a uint8 tensor in the same layout; where some have
            none, or not of that kind, a list of numpy arrays of shape (height, width, channels) and None.
        target: int64 tensor of shape (n,); only with `classes`.
        valid: bool tensor of shape (n,), where steps are planned: False for what repeats another sample, in place of one that failed, or so
            that ranks are equal. All that are valid are different samples.
        state: with_state only: what state_dict of this stream would have given right after this batch.

    A sample without an image is a failure. In planned batches another one of its bucket comes in the place of one that fails: first those
    that `remainder` and `uneven` leave out, then repetitions. Without planned steps `uneven` makes samples equal in number on all ranks.
    Epochs, workers and state are those of DatagoIterDataset: the state belongs to the batches that were handed out.
    """

    def __init__(
        self, config: dict[str, Any] | str | bytes | os.PathLike[str], batch_size: int, layout: Literal["NCHW", "NHWC"] = "NCHW",
        remainder: Literal["keep", "drop"] = "keep", dtype: Any = "uint8", mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None, channels: Literal[1, 3] = 3,
        classes: str | os.PathLike[str] | Sequence[str] | dict[str, int] | None = None,
        most_waiting: int | None = None, steps: Way | None = None, sizes: "Sizes | ArrayLike | None" = None,
        sizes_cache: str | os.PathLike[str] | None = None, with_state: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(config, return_python_types=False)
        self._with_state = with_state
        settings = self._client.config
        kind = source_type(settings.source_type)
        dtype = getattr(dtype, "__name__", str(dtype)).rpartition(".")[2]
        check("batch_size", batch_size, whole(batch_size, 1), "an integer of at least 1")
        check("batch_size", batch_size, batch_size <= LARGEST, f"at most {LARGEST}")
        check("layout", layout, layout in ("NCHW", "NHWC"), "'NCHW' or 'NHWC'")
        check("remainder", remainder, remainder in ("keep", "drop"), "'keep' or 'drop'")
        check("dtype", dtype, dtype in DTYPES, f"one of {', '.join(DTYPES)}")
        check("dtype", dtype, torch or dtype != "bfloat16", "another one: numpy has no bfloat16, and torch is not installed")
        check("channels", channels, whole(channels, 1) and channels in (1, 3), "1 or 3")
        named = isinstance(classes, str) and bool(classes) and classes != "folder"
        check("classes", classes, classes is None or kind.has_folders or named, "an attribute's name: this source has no folders")
        check("most_waiting", most_waiting, most_waiting is None or whole(most_waiting, 1), "an integer of at least 1, or None")
        check("mean, std", (mean, std), dtype != "uint8" or mean is std is None, "none with dtype uint8: its values stay what they are")
        check_images(settings)
        self._stepping = Stepping(steps, settings, batch_size, remainder, sizes, sizes_cache)
        self._way: Way = "own"  # of the pass under way
        self._handed: dict[str, Any] | None = None  # where ranks agree: the state of the batch that was handed out last
        self._lengths: dict[tuple[int, int], int] = {}  # (epoch, world_size): the number of planned steps
        most, largest = share(settings, batch_size * channels * DTYPES[dtype], 1 if steps == "planned" else most_waiting)
        means, deviations = each("mean", mean, channels, 0.0), each("std", std, channels, 1.0)
        check("std", std, 0 not in deviations, "nothing that is 0")
        self._other_scale = other_scale(means, deviations)
        if self._other_scale and settings.strict:
            raise ValueError(self._other_scale)
        if self._other_scale:
            hints.warn(f"{self._other_scale}; reading a batch raises ValueError")
        self.classes: dict[str, int] | None = None
        if classes == "folder":
            self.classes = {name: number for number, name in enumerate(kind.class_folders(settings))}
        elif kind.has_folders and (not isinstance(classes, str | None) or names_a_file(classes)):
            try:
                self.classes = numbered(classes)
            except ValueError as error:
                check("classes", classes, False, f"'folder', names and numbers, or a file of them: {error}")
        self._batch = BatchSettings(
            size=batch_size, layout=layout, drop=remainder == "drop", dtype=dtype, channels=channels, mean=means, std=deviations,
            most_waiting=min(most_waiting or 2**62, 2**62), most=most, bytes=largest,
            label=of_folder(self.classes) if self.classes is not None else of_attribute(classes) if isinstance(classes, str) else None,
        )  # fmt: skip
        self._client._config = replace(settings, image_config=replace(settings.image_config, image_to_rgb8=True), batch=self._batch)

    def _settle(self) -> Way:
        """The way to equal steps that is taken now; the client's config follows it."""
        info, config = get_worker_info(), self._client.config
        way = self._stepping.way(config, info.id if info else None)
        planned = self._stepping.planning if way == "planned" else None
        self._client._config = replace(config, batch=replace(self._batch, planning=planned))
        self._way = way
        return way

    def __iter__(self) -> Iterator[Batch]:
        way, self._handed = self._settle(), None
        batches = super().__iter__()
        return self._agreed(batches) if way == "agreed" else batches

    def _agreed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """What ranks agree on, where a batch is read ahead: the state is that of the one that was handed out."""
        state = None
        for batch, state in agreed(batches):
            self._handed = state
            self._keep(state)
            yield batch
        self._handed = state and {**state, "ended": True}

    def _stated(self, client: DatagoClient, outcome: Any) -> Any:
        return (outcome, self._state_of(client, outcome, True)) if self._way == "agreed" else super()._stated(client, outcome)

    def _next(self) -> DatagoClient:
        self._settle()
        return super()._next()

    def _state_here(self) -> dict[str, Any]:
        handed = self._handed
        return handed if handed is not None and handed["epoch"] == self._epoch_now() else super()._state_here()

    def _load(self, state: dict[str, Any] | list[dict[str, Any]], fit_loop: FitLoop | None) -> None:
        self._settle()
        super()._load(state, fit_loop)
        self._handed = None

    def _pass(self) -> Generator[Any, None, None]:
        if self._other_scale:
            raise ValueError(self._other_scale)
        return super()._pass()

    def _made(self, batch: SampleBatch) -> Any:
        samples = batch.samples
        made: Batch = {
            "image": self._tensor(batch),
            "id": [sample.id for sample in samples],
            "source": [sample.source for sample in samples],
            "attributes": [plain_attributes(sample.attributes) for sample in samples],
            "bucket": (batch.width, batch.height),
            "original_size": [(sample.image.original_width, sample.image.original_height) for sample in samples],
            "masks": self._others([sample.masks for sample in samples]),
            "additional_images": self._others([sample.additional_images for sample in samples]),
        }
        if self._batch.label is not None:
            made["target"] = self._targets(batch.targets)
        if self._way == "planned":
            made["valid"] = numpy.array(batch.valid) if torch is None else torch.tensor(batch.valid)
        return {key: value for key, value in made.items() if torch.is_tensor(value)} if self._tensors_only else made

    def _tensor(self, batch: SampleBatch) -> Any:
        layout, channels = self._batch.layout, self._batch.channels
        shape = len(batch.samples), batch.height, batch.width, channels
        shape = shape if layout == "NHWC" else (shape[0], channels, *shape[1:3])
        count, dtype = math.prod(shape), self._batch.dtype
        if torch is None:
            return numpy.frombuffer(memoryview(batch.pixels), dtype, count).reshape(shape)
        try:
            tensor = torch.frombuffer(batch.pixels, dtype=getattr(torch, dtype), count=count).reshape(shape)
        except (torch.OutOfMemoryError, SystemError):  # so it calls a failed allocation of the object itself
            raise MemoryError("no memory for a tensor") from None
        return tensor.pin_memory() if torch.cuda.is_available() and get_worker_info() is None else tensor

    def _others(self, of_samples: Sequence[dict[str, ImagePayload]]) -> dict[str, Any]:
        """name → what each sample has under it."""
        found = {}
        for name in sorted({name for images in of_samples for name in images}):
            arrays = [images[name].to_numpy_array() if name in images else None for images in of_samples]
            kinds = {None if array is None else (array.shape, array.dtype.name) for array in arrays}
            found[name] = self._stacked(arrays) if len(kinds) == 1 else arrays
        return found

    def _stacked(self, arrays: list[Any]) -> Any:
        whole = numpy.stack(arrays)
        if self._batch.layout == "NCHW":
            whole = numpy.ascontiguousarray(whole.transpose(0, 3, 1, 2))
        return whole if torch is None else torch.from_numpy(whole)

    def _targets(self, targets: list[int]) -> Any:
        return numpy.array(targets, numpy.int64) if torch is None else torch.tensor(targets, dtype=torch.int64)

    def __len__(self) -> int:
        """How many batches a pass gives on this rank. Where steps are planned that is exact. Else it holds if no sample fails, over all
        workers of the DataLoader that asks, each of which may have a short one; TypeError where buckets decide about that, or where it is
        not known how many samples each worker has."""
        workers = asking_workers(sys._getframe(1))
        self._check_length(FitLoop.of(sys._getframe(1)), workers, self._batch.size)
        if self._settle() == "planned":
            source = self._client.part(0, 1)
            source.set_epoch(self._epoch_now())
            key = source.epoch, source.config.source_config.world_size
            if key not in self._lengths:
                self._lengths[key] = cast(PlannedSource, source._opened()).steps()
            return self._lengths[key]
        if len(geometry.sizes(self._client.config.image_config)) > 1:
            raise TypeError("the number of batches is not known: it depends on which pictures go to which bucket")
        size, drop = self._batch.size, self._batch.drop
        counts = self._counts(workers, guessed=workers == 1)
        return sum(count // size if drop else -(-count // size) for count in counts)
