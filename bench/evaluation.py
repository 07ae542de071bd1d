#!/usr/bin/env python3
"""What evaluation costs beside training: CPU time a picture, of this process alone, on the same files.

    bench/evaluation.py FOLDER [--rounds 7] [--tasks 2]

Batches of 64 uint8 pictures of 224 x 224, in fast mode: the crops and the square bucket of a training, and the usual ways to evaluate.
The streams are read in turn, round after round, so that whatever else the machine does meets all of them. Printed: the median over
the rounds of ms of CPU a picture, and of its ratio to both trainings in the same round.
"""

import argparse
import os
import resource
import statistics

SIDE = 224
TRAINING = {
    "random_resized_crop": {"random_resized_crop": SIDE},
    "square bucket": {
        "crop_and_resize": True, "default_image_size": SIDE, "downsampling_ratio": SIDE, "min_aspect_ratio": 0.99, "max_aspect_ratio": 1.01,
    },
}  # fmt: skip
EVALUATION = {
    "bilinear 256/224": {"resize": 256, "center_crop": SIDE, "interpolation": "bilinear"},
    "bicubic 248/224": {"resize": 248, "center_crop": SIDE, "interpolation": "bicubic"},
    "lanczos 256/224": {"resize": 256, "center_crop": SIDE},
    "bilinear letterbox 224": {"pad": SIDE, "interpolation": "bilinear"},
}


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def spent(folder, image):
    """ms of CPU a picture."""
    from datago import DatagoBatchDataset

    dataset = DatagoBatchDataset({"source_type": "file", "source_config": {"root_path": folder}, "image_config": image}, 64)
    before = cpu()
    count = sum(len(batch["id"]) for batch in dataset)
    return 1000 * (cpu() - before) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=2, help="worker threads")
    arguments = parser.parse_args()
    os.environ["DATAGO_MAX_TASKS"] = str(arguments.tasks)
    ways = {**TRAINING, **EVALUATION}
    for image in ways.values():  # files into the cache, code into memory
        spent(arguments.folder, image)
    rounds = [{name: spent(arguments.folder, image) for name, image in ways.items()} for _ in range(arguments.rounds)]
    print(f"{'':24}{'ms a picture':>14}" + "".join(f"{'of ' + name:>24}" for name in TRAINING))
    for name in ways:
        ratios = "".join(f"{statistics.median(one[name] / one[base] for one in rounds):24.3f}" for base in TRAINING)
        print(f"{name:24}{statistics.median(one[name] for one in rounds):14.3f}{ratios}")


if __name__ == "__main__":
    main()
