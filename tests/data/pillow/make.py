#!/usr/bin/env python3
"""Sums up how the installed Pillow resizes: python3 make.py > pillow13.json, with Pillow 13.0 (pillow12.json: with 12.3).

The pixel (y, x, c) of an image is (31 y y + 17 x + 101 c + 7 x y) mod 256. `bytes` are those of the resized image, row by row, in
hexadecimal. Sizes on both sides of H - h > 2 (W - w), where Pillow 13 resizes columns before rows."""

import json

import PIL.Image

SIZES = [  # from (height, width) to (height, width)
    ((40, 9), (6, 5)), ((40, 9), (6, 14)), ((23, 11), (9, 4)), ((24, 11), (9, 4)), ((12, 30), (5, 29)), ((9, 40), (5, 6)),
    ((7, 6), (12, 13)), ((50, 8), (7, 8)), ((16, 16), (4, 20)), ((33, 7), (32, 9)),
]
FILTERS = {"bilinear": PIL.Image.Resampling.BILINEAR, "bicubic": PIL.Image.Resampling.BICUBIC, "box": PIL.Image.Resampling.BOX}


def image(height, width):
    pixels = bytes((31 * y * y + 17 * x + 101 * c + 7 * x * y) % 256 for y in range(height) for x in range(width) for c in range(3))
    return PIL.Image.frombytes("RGB", (width, height), pixels)


cases = [{"from": list(before), "to": list(after), "interpolation": name,
          "bytes": image(*before).resize((after[1], after[0]), kind).tobytes().hex()}
         for before, after in SIZES for name, kind in FILTERS.items()]
print("[" + ",\n ".join(json.dumps(case) for case in cases) + "]")
