#!/usr/bin/env python3
"""Prints what the fuzz targets reach, for the small build of the preset `fuzz` (cmake/MnemoFuzz.cmake):
  source LIBRARY PATH      a source below src/ and the library that compiles it, readers_ROOM or models_ROOM
  target NAME LIBRARY      what a target is linked with

A source is reached if a header is included that it implements: the one of its name or of the beginning of it (vit.h has
vit_tasks.cpp, too), or, where there is none, any of its room that it includes. Readers are reached by targets that need no arithmetic of tensors; the others wait for the rest."""

import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)


def included(file):
    for name in INCLUDE.findall(file.read_text()):
        for folder in (SRC, file.parent):
            if (found := (folder / name).resolve()).is_file():
                yield found
                break


def room_of(file):
    return file.relative_to(SRC).parts[0] if SRC in file.parents else None


def implementations(includes):
    made = collections.defaultdict(list)
    for source in (file for file in includes if file.suffix == ".cpp"):
        words = source.stem.split("_")
        own = [header for count in range(1, len(words) + 1) if (header := source.with_name("_".join(words[:count]) + ".h")) in includes]
        for header in own or [file for file in includes[source] if room_of(file) == room_of(source)]:
            made[header].append(source)
    return made


def reached(start, includes, made):
    seen, left = set(), [start]
    while left:
        file = left.pop()
        if file not in seen:
            seen.add(file)
            left += includes.get(file) or list(included(file))
            left += made.get(file, [])
    return sorted(file for file in seen if file.suffix == ".cpp" and room_of(file))


def main():
    files = [file for pattern in ("*.h", "*.cpp") for file in SRC.rglob(pattern)
             if file.name != "start.cpp" and "cuda" not in file.parent.parts]
    includes = {file: list(included(file)) for file in files}
    made = implementations(includes)
    targets = {file.stem: reached(file, includes, made) for file in sorted((ROOT / "tests/fuzz").glob("*_fuzz.cpp"))}
    library = {}
    for part, with_ops in (("readers", False), ("models", True)):
        for sources in targets.values():
            if with_ops == any(room_of(source) == "ops" for source in sources):
                for source in sources:
                    library.setdefault(source, f"{part}_{room_of(source)}")
    needs = collections.defaultdict(set)
    for source, name in library.items():
        needs[name] |= {library[other] for other in reached(source, includes, made)} - {name}
        print("source", name, source.relative_to(SRC))
    for target, sources in targets.items():
        direct = {library[source] for source in sources}
        for name in sorted(direct.union(*(needs[one] for one in direct))):
            print("target", target, name)


main()
