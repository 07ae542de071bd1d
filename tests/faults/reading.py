"""A stream read to its end, and what came of it: for the tests, and for the processes that they start."""

import hashlib
import os
import time

from datago import SourceError

LIMIT = 20.0  # seconds in which each cell has to end


def seen(sample):
    """(name of the picture, hash of its pixels)."""
    return os.path.basename(sample.id).partition(".")[0], pixels_hash(sample.image.to_numpy_array())


def pixels_hash(array):
    digest = hashlib.sha256(repr(array.shape).encode())
    digest.update(array)
    return digest.hexdigest()


def drain(client, on_sample=lambda count: None):
    """Reads a stream to its end.

    Returns a dict: `found`, a list of (name, hash); `error`, the text of what ended the stream, or ""; `stats`; `seconds`.
    """
    found, error, begin = [], "", time.monotonic()
    try:
        while (sample := client.get_sample(timeout=LIMIT)) is not None:
            found.append(seen(sample))
            on_sample(len(found))
    except TimeoutError:
        error = "HANGS"
    except (SourceError, OSError, MemoryError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    client.stop()
    return {"found": found, "error": error, "stats": client.stats(), "seconds": time.monotonic() - begin}
