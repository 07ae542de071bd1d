#!/usr/bin/env python3
"""How far resize_mode "fast" is from "exact": PSNR and mean difference per channel over a folder of photographs.

    bench/quality.py FOLDER [--sizes 224 512 1024] [--interpolation lanczos]

PSNR is that of all samples of a picture together: 10 log10(255² / mean squared difference). The floor that the tests hold:
at least 40 dB on every photograph, a median of 45, and no mean difference of 0.5 in any channel.
"""

import argparse
import statistics

import numpy

from datago import DatagoClient


def stream(folder, size, mode, interpolation):
    image = {
        "crop_and_resize": True,
        "default_image_size": size,
        "downsampling_ratio": 32 if size >= 512 else 16,
        "min_aspect_ratio": 0.5,
        "max_aspect_ratio": 2.0,
        "resize_mode": mode,
        "interpolation": interpolation,
    }
    return DatagoClient({"source_type": "file", "source_config": {"root_path": folder}, "image_config": image, "samples_buffer_size": 8})


def compare(folder, size, interpolation):
    """(PSNR in dB, largest mean difference of a channel) of each picture, by its path."""
    fast, exact, results = {}, {}, {}
    clients = [
        (iter(stream(folder, size, "fast", interpolation)), fast, exact),
        (iter(stream(folder, size, "exact", interpolation)), exact, fast),
    ]
    while clients:  # both in step, so that few pictures wait for their twin
        for entry in list(clients):
            source, own, other = entry
            sample = next(source, None)
            if sample is None:
                clients.remove(entry)
                continue
            array = sample.image.to_numpy_array().astype(numpy.int32)
            if sample.id not in other:
                own[sample.id] = array
                continue
            difference = array - other.pop(sample.id)
            square = (difference**2).mean()
            psnr = 99.0 if square == 0 else 10 * numpy.log10(255**2 / square)
            results[sample.id] = psnr, abs(difference.mean(axis=(0, 1))).max()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--sizes", type=int, nargs="+", default=[224, 512, 1024])
    parser.add_argument("--interpolation", default="lanczos")
    arguments = parser.parse_args()
    print(" size  pictures  least dB  median dB  largest mean difference")
    for size in arguments.sizes:
        results = compare(arguments.folder, size, arguments.interpolation)
        psnr = [value for value, _ in results.values()]
        shift = max(value for _, value in results.values())
        print(f"{size:5} {len(psnr):9} {min(psnr):9.2f} {statistics.median(psnr):10.2f} {shift:24.3f}", flush=True)


if __name__ == "__main__":
    main()
