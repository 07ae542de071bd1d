"""DatagoIterDataset: the stream as an iterable for a training loop."""

from datago.client import DatagoClient


class DatagoIterDataset:
    """Iterates over the samples of a config, a full pass each time.

    Args:
        config: as for DatagoClient.
        return_python_types: yield dicts of plain Python values with PIL images (as `get_sample_auto_convert`), else Samples.
    """

    def __init__(self, config, return_python_types=True):
        self._config = config
        self._convert = return_python_types
        self._limit = DatagoClient(config)._config.limit

    def __iter__(self):
        with DatagoClient(self._config) as client:
            get = client.get_sample_auto_convert if self._convert else client.get_sample
            while (sample := get()) is not None:
                yield sample

    def __len__(self):
        """The config's `limit`; TypeError if it has none, since a folder is not counted before it is read."""
        if self._limit == 2**63 - 1:
            raise TypeError("the number of samples is not known: the config has no limit")
        return self._limit
