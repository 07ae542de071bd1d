"""Makes batches of pictures of one size each, for models that accept many aspect ratios.

python examples/buckets.py PICTURES
"""

import argparse
from collections import Counter

from datago import DatagoBatchDataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures")
    parser.add_argument("--size", type=int, default=256, help="side of the square bucket, in pixels")
    parser.add_argument("--batch-size", type=int, default=8)
    arguments = parser.parse_args()
    batches = DatagoBatchDataset(
        {
            "source_type": "file",
            "source_config": {"root_path": arguments.pictures},
            "image_config": {
                "crop_and_resize": True, "default_image_size": arguments.size, "downsampling_ratio": 32,
                "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0, "random_crop": True, "horizontal_flip": 0.5,
            },
            "seed": 2026,
        },
        batch_size=arguments.batch_size,
    )  # fmt: skip
    pictures: Counter[tuple[int, int]] = Counter()
    sizes: Counter[tuple[int, int]] = Counter()
    for batch in batches:
        assert batch["image"].shape == (len(batch["id"]), 3, *reversed(batch["bucket"]))
        pictures[batch["bucket"]] += len(batch["id"])
        sizes[batch["bucket"]] += 1
    for width, height in sorted(pictures, key=lambda bucket: bucket[0] / bucket[1]):
        print(f"{width:5} x {height:<5} {pictures[width, height]:6} pictures in {sizes[width, height]} batches")
    print(f"{sum(pictures.values())} pictures")


if __name__ == "__main__":
    main()
