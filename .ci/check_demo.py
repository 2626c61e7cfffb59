#!/usr/bin/env python3
"""Checks what a demo left behind: check_demo.py FOLDER (with report.html and results.json)."""

import json
import math
import pathlib
import re
import sys


def numbers(value, where):
    """Every number in a JSON value with the path to it; a text such as "nan" where a number belongs counts as one."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from numbers(item, f"{where}[{index}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield where, float(value)
    elif isinstance(value, str) and value.strip().lower() in ("nan", "-nan", "inf", "-inf", "infinity", "-infinity"):
        yield where, math.nan


def main():
    folder = pathlib.Path(sys.argv[1])
    errors = []
    found = list(numbers(json.loads((folder / "results.json").read_text()), "results"))
    if not found:
        errors.append("results.json holds no number")
    errors += [f"{where} is {value}" for where, value in found if not math.isfinite(value)]

    report = folder / "report.html"
    if not report.is_file() or report.stat().st_size < 10_000:
        errors.append(f"{report} is missing or has fewer than 10,000 bytes")
    else:
        page = report.read_text(encoding="utf-8")
        # Only in table cells and in data: the sample texts may hold any word.
        bad = r"-?(?:nan|inf(?:inity)?)"
        shown = re.findall(rf"<td[^>]*>\s*({bad})\b[^<]*</td>", page, flags=re.IGNORECASE)
        for data in re.findall(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, flags=re.DOTALL):
            shown += re.findall(rf"[:,\[]\s*({bad})\s*[,\]}}]", data, flags=re.IGNORECASE)
        errors += [f"report.html shows '{word}'" for word in shown]
        errors += [f"report.html loads {url} from outside" for url in re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=[\"'](https?:[^\"']*)", page)]

    for error in errors:
        print(f"check_demo: {error}", file=sys.stderr)
    print(f"check_demo: {len(found)} numbers, report of {report.stat().st_size if report.is_file() else 0} bytes")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
