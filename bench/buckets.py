#!/usr/bin/env python3
"""Draws docs/buckets.png: what becomes of one picture, drawn here, in each mode.   bench/buckets.py [docs/buckets.png]"""

import sys
import tempfile

from PIL import Image, ImageDraw

from datago import DatagoClient, aspect_buckets

BUCKETS = {"default_image_size": 128, "downsampling_ratio": 16, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
MODES = [
    ("crop_and_resize", {"crop_and_resize": True, **BUCKETS}),
    ("… and random_crop", {"crop_and_resize": True, "random_crop": True, **BUCKETS}),
    ("random_resized_crop: 128", {"random_resized_crop": {"size": 128, "scale": [0.1, 0.4]}}),
    ("… and horizontal_flip: 1", {"random_resized_crop": {"size": 128, "scale": [0.1, 0.4]}, "horizontal_flip": 1}),
]
PAPER, INK, FAINT = "white", "#222222", "#8899aa"


def drawn(width, height):
    """A test picture: a chequered ground, circles, and its middle marked."""
    picture = Image.new("RGB", (width, height), "#dfe8f0")
    draw = ImageDraw.Draw(picture)
    for y in range(0, height, 40):
        for x in range(0, width, 40):
            if (x + y) // 40 % 2:
                draw.rectangle((x, y, x + 39, y + 39), fill="#c4d4e2")
    discs = (0.2, 0.3, 0.16, "#d1495b"), (0.5, 0.5, 0.22, "#edae49"), (0.82, 0.7, 0.15, "#00798c"), (0.85, 0.2, 0.08, "#30638e")
    for x, y, radius, fill in discs:
        x, y, radius = x * width, y * height, radius * height
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
    draw.line((width / 2 - 12, height / 2, width / 2 + 12, height / 2), INK, 3)
    draw.line((width / 2, height / 2 - 12, width / 2, height / 2 + 12), INK, 3)
    return picture


def main():
    page = Image.new("RGB", (880, 470), PAPER)
    draw = ImageDraw.Draw(page)

    def put(picture, x, y, text):
        page.paste(picture, (x, y))
        draw.rectangle((x, y, x + picture.width - 1, y + picture.height - 1), outline=INK)
        draw.text((x, y + picture.height + 4), text, INK, font_size=12)

    with tempfile.TemporaryDirectory() as folder:
        picture = drawn(600, 320)
        picture.save(f"{folder}/drawn.png")
        put(picture.resize((250, 133)), 15, 15, "a picture of 600 x 320")
        x = 15
        for text, image in MODES:
            source = {"source_type": "file", "source_config": {"root_path": folder}, "seed": 7, "image_config": image}
            sample = DatagoClient(source).get_sample()
            put(sample.image.to_pil_image(), x, 215, f"{text}\n{sample.image.width} x {sample.image.height}")
            x += 220
    sizes = aspect_buckets(*BUCKETS.values())
    x = 300
    for width, height in sizes:
        draw.rectangle((x, 90 - height // 4, x + width // 2, 90 + height // 4), outline=FAINT, width=2)
        draw.text((x, 94 + height // 4), f"{width}x{height}", INK, font_size=11)
        x += width // 2 + 14
    draw.text((15, 400), "The buckets (above, right) all have about the area of 128 x 128 pixels, and sides that are multiples of 16. "
              "A picture goes to",
              INK, font_size=13)  # fmt: skip
    draw.text((15, 420), "the one whose shape is nearest to its own; what sticks out is cut off on both sides alike, "
              "or anywhere with random_crop.",
              INK, font_size=13)  # fmt: skip
    page.quantize(64, dither=Image.Dither.NONE).save(sys.argv[1] if len(sys.argv) > 1 else "docs/buckets.png", optimize=True)


if __name__ == "__main__":
    main()
