#!/usr/bin/env python3
"""Runs the examples and the program `mnemo` on the same models, and compares what they print, character by character.

  check_examples.py FOLDER MNEMO     FOLDER holds the built examples; MNEMO is the installed program
"""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zlib

# The program `mnemo` tells MKL to take its fastest path on any processor, which rounds otherwise; the examples do not.
ENVIRONMENT = os.environ | {"MNEMO_MKL_OVERRIDE": "0"}
HERE = pathlib.Path(__file__).resolve().parent


def run(*words, cwd=None):
    """What a program prints; an exit status other than 0 ends the test."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, cwd=cwd, env=ENVIRONMENT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def same(what, example, command):
    """Ends the test unless both are the same."""
    if example != command:
        sys.exit(f"{what}: the example prints\n{example}\nand the command\n{command}")


def held_out(text):
    return [line for line in text.splitlines() if line.startswith("held-out ")]


def check_texts(examples, mnemo, folder, reset):
    """Trains the same model with both; both write and measure the same."""
    ours, theirs = folder / f"{reset}-example", folder / f"{reset}-command"
    keys = ["train.steps=60", f"data.reset={reset}"]
    recipe = HERE / "tiny.toml"
    trained = run(examples / "train_tiny", recipe, ours, *keys)
    command = run(mnemo, "train", recipe, "--out", theirs, "-q", *[word for key in keys for word in ("--set", key)])
    if not held_out(trained):
        sys.exit(f"train_tiny says nothing of held-out data:\n{trained}")
    same(f"training, reset = {reset}", held_out(trained), held_out(command))
    for file in ("config.json", "model.safetensors", "text.json", "vocabulary.json"):
        same(f"{file}, reset = {reset}", (ours / "model" / file).read_bytes(), (theirs / "model" / file).read_bytes())

    # Longer than a segment, so that what happens to memory between segments shows.
    prompt = "This is the cat that killed the rat"
    text = run(examples / "stream_text", ours, prompt, 120)
    generate = (mnemo, "generate", ours, "-q", "--prompt", prompt, "--tokens", 120, "--temperature", 0.5, "--seed", 1)
    same(f"generated text, reset = {reset}", text, run(*generate) + "\n")
    measured = run(examples / "evaluate_text", ours, HERE / "rhyme.txt")
    table = [line.replace(",", "").split() for line in run(mnemo, "eval", ours, "--data", HERE / "rhyme.txt", "-q").splitlines()[1:]]
    rows = [row for row in table if len(row) == 2 and row[0] not in ("metric", "seconds") and not row[0].startswith("-")]
    same(f"evaluation, reset = {reset}", [line.split() for line in measured.splitlines()], rows)
    if reset == "segments":
        # Without the setting beside the model both texts and numbers are others, or this test would show nothing.
        (ours / "model" / "text.json").unlink()
        if run(examples / "evaluate_text", ours, HERE / "rhyme.txt") == measured:
            sys.exit("the model of reset = segments measures the same without its text.json")
        if run(examples / "stream_text", ours, prompt, 120) == text:
            sys.exit("the model of reset = segments writes the same without its text.json")


def check_quickstart(examples, mnemo, folder):
    """README's example, on a run that is called as there."""
    run(examples / "train_tiny", HERE / "tiny.toml", folder / "runs/mine", "train.steps=20")
    (folder / "other.txt").write_bytes((HERE / "rhyme.txt").read_bytes())
    text = run(mnemo, "generate", folder / "runs/mine", "-q", "--prompt", "Once upon", "--tokens", 200)
    measured = run(mnemo, "eval", folder / "runs/mine", "--data", folder / "other.txt", "-q")
    perplexity = next(line.split()[1] for line in measured.splitlines() if line.startswith("perplexity"))
    expected = f"{text.removeprefix('Once upon')}\nperplexity {perplexity}\n"
    same("quickstart", run(examples / "quickstart", cwd=folder), expected)


def write_png(path, colour, rng, width=16, height=16):
    """An RGB image in about one colour."""
    row = colour * width
    rows = b"".join(b"\0" + bytes(min(255, max(0, c + rng.randrange(-40, 40))) for c in row) for _ in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


IMAGES = """
[data]
type = "images"
train = "set/train"
valid = "set/valid"
[model]
head = { type = "classification", pool = "cls" }
[model.backbone]
type = "vit"
image_size = [16, 16]
patch_size = 8
dim = 16
num_layers = 2
num_heads = 2
[train]
steps = 20
batch_size = 6
"""


def check_images(examples, mnemo, folder):
    """A model of images, then the same with a task attached."""
    rng = random.Random(1)
    for part, count in (("train", 6), ("valid", 2)):
        for name, colour in (("red", (220, 40, 40)), ("green", (40, 220, 40)), ("blue", (40, 40, 220))):
            for i in range(count):
                write_png(folder / "set" / part / name / f"{i}.png", colour, rng)
    (folder / "images.toml").write_text(IMAGES)
    run(examples / "train_tiny", folder / "images.toml", folder / "images")
    image = folder / "set/valid/green/1.png"
    plain = run(examples / "classify_image", folder / "images", image)
    same("classes", plain, run(mnemo, "classify", folder / "images", image, "--top", 3))
    for name in ("red", "green", "blue"):
        if name not in plain:
            sys.exit(f"classify_image does not name the class {name}:\n{plain}")
    run(mnemo, "finetune", folder / "images.toml", "--model", folder / "images", "--name", "colours", "--out",
        folder / "task", "--set", "train.steps=5", "-q")
    run(mnemo, "attach", folder / "images", folder / "task/colours.task.safetensors", "--out", folder / "joined")
    both = run(examples / "classify_image", folder / "joined", image)
    same("classes of two heads", both, run(mnemo, "classify", folder / "joined", image, "--top", 3))
    if "colours" not in both:
        sys.exit(f"classify_image leaves out the attached task:\n{both}")


DETECTOR = """
[data]
type = "detection"
train = "objects/instances_painted.json"
shorter = [64]
[model]
head = { type = "faster_rcnn", channels = 16, hidden = 32, score_thresh = 0.3 }
[model.backbone]
type = "pvt_v2"
image_size = [64, 64]
dims = [8, 16, 16, 16]
depths = [1, 1, 1, 1]
num_heads = [1, 1, 2, 2]
[train]
steps = 3
batch_size = 2
"""


def paint_objects(folder):
    """Writes four images in objects/painted, each with one object, and a recipe, which is returned. The Python package's
    tests take them, too."""
    rng = random.Random(2)
    images, objects = [], []
    for i in range(4):
        write_png(folder / f"objects/painted/{i}.png", (200, 60, 60), rng, width=64, height=72)
        images.append({"id": i, "file_name": f"{i}.png", "height": 72, "width": 64})
        objects.append({"id": i, "image_id": i, "category_id": 1, "bbox": [8, 8, 40, 40], "area": 1600, "iscrowd": 0,
                        "segmentation": [[8, 8, 48, 8, 48, 48, 8, 48]]})
    set_of = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "square"}]}
    (folder / "objects/instances_painted.json").write_text(json.dumps(set_of))
    (folder / "detector.toml").write_text(DETECTOR)
    return folder / "detector.toml"


def check_objects(examples, mnemo, folder):
    """A detector of one object an image."""
    run(examples / "train_tiny", paint_objects(folder), folder / "detector")
    image, picture = folder / "objects/painted/1.png", folder / "found.svg"
    found = run(examples / "detect_objects", folder / "detector", image, picture)
    same("objects", found, run(mnemo, "detect", folder / "detector", image, "--threshold", 0.3, "--top", 20))
    if "square" not in found or "square" not in picture.read_text():
        sys.exit(f"detect_objects finds nothing:\n{found}")


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    examples, mnemo = (pathlib.Path(argument).resolve() for argument in arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for reset in ("documents", "segments"):
            check_texts(examples, mnemo, folder, reset)
        check_quickstart(examples, mnemo, folder)
        check_images(examples, mnemo, folder)
        check_objects(examples, mnemo, folder)
    print("the examples print what the command prints")


if __name__ == "__main__":
    main(sys.argv[1:])
