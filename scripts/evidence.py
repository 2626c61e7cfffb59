"""Pages of evidence: reads stored measurements (JSON) and writes them as Markdown, for scripts/results and
scripts/performance.

A study is one JSON file:
  title, what       heading of its section; what was measured, in one or two sentences
  commands          list of command lines that repeat it
  machine           text
  seeds or repeats  text: the seeds of a training, or how often a time was taken
  recorded          {"date", "commit"}: when these numbers entered the repository
  tables            list of {"caption", "columns", "rows"}
  pictures, notes   optional: list of [FILE, ALT]; list of sentences
  charts            optional: pictures that are drawn from the tables (scripts/line_chart.py)

A column is its name, or {"name", "unit", "signed"}. A cell is null, a text, a number, a list (one number a seed), or
{"value", "spread" | "low" and "high", "p", "paper", "mark"}: spread is a standard deviation, low and high are a range,
p is of a test, paper is the paper's own figure, mark is "better", "worse" or "best".
Numbers keep the digits they were written with (2.40 stays 2.40).
"""

import decimal
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 120
REQUIRED = {"title", "what", "commands", "machine", "recorded", "tables"}
COUNTS = {"seeds": "Seeds", "repeats": "Times"}
OPTIONAL = {"pictures", "charts", "notes"}
CELL_KEYS = {"value", "spread", "low", "high", "paper", "mark", "p"}
MARKS = {"better": " ▲", "worse": " ▼"}


class Fault(Exception):
    """What is wrong with a file; the message names it."""


SIGNIFICANT = 0.05
MANY_SEEDS = 100


def t_tail(t, freedom, steps=4000):
    """P(|T| > |t|) of Student's t: T = sqrt(freedom) tan(u), so the tail is an integral of cos(u)^(freedom - 1)."""
    begin = math.atan(abs(t) / math.sqrt(freedom))
    width = (math.pi / 2 - begin) / steps
    weights = [1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1)]
    inside = sum(w * max(0.0, math.cos(begin + i * width)) ** (freedom - 1) for i, w in enumerate(weights)) * width / 3
    return inside * 2 / math.sqrt(math.pi) * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))


def t_critical(freedom, tail=SIGNIFICANT):
    """t with P(|T| > t) = tail, by bisection."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > tail else (low, middle)
    return high


def welch(mean, variance, count, other_mean, other_variance, other_count):
    """Difference of two means, its standard error, degrees of freedom; variances are those of the means."""
    error = math.sqrt(variance + other_variance)
    parts = variance**2 / (count - 1) + other_variance**2 / (other_count - 1)
    return mean - other_mean, error, (variance + other_variance) ** 2 / parts if error else 1


def verdict(test, gain, error, freedom):
    """Verdict of a claim that "expects" one side to be "better", or both to be "level" within a "margin"."""

    def surely(distance, tail):
        return distance > 0 and (error == 0 or t_tail(distance / error, freedom) < tail)

    if test["expects"] == "better":
        if surely(abs(gain), SIGNIFICANT):
            return "reproduced" if gain > 0 else "not reproduced"
        return "undecided"
    margin = float(test["margin"])
    # Two one-sided tests: level if the 90 % interval is within the margin; apart if the 95 % interval is outside of it.
    if surely(margin - abs(gain), 2 * SIGNIFICANT):
        return "reproduced"
    return "not reproduced" if surely(-gain - margin, SIGNIFICANT) else "undecided"


def seeds_to_decide(test, difference, error, freedom, count, higher_is_better):
    """"12": so many seeds of each would decide, with this difference and spread; at most "100+"."""
    gain = difference if higher_is_better else -difference
    for seeds in range(count + 1, MANY_SEEDS + 1):
        shrunk = error * math.sqrt(count / seeds)
        if verdict(test, gain, shrunk, freedom * (seeds - 1) / (count - 1)) != "undecided":
            return str(seeds)
    return f"{MANY_SEEDS}+"


def verdict_of(test, difference, error, freedom, higher_is_better):
    """The verdict, and a sentence with its numbers."""
    gain = difference if higher_is_better else -difference
    found = verdict(test, gain, error, freedom)
    if error == 0:
        p = 0.0 if difference else 1.0
        resolution = 0.0
    else:
        p = t_tail(difference / error, freedom)
        resolution = t_critical(freedom) * error
    text = (f"difference {difference:+.4g}, {'for' if gain > 0 else 'against'} the claim's model, p = {p:.2g}; "
            f"resolution {resolution:.2g}")
    if test["expects"] == "level":
        text += f"; {'level within' if found == 'reproduced' else 'margin'} {float(test['margin']):g}"
    return found, text


def load(path):
    """A JSON file whose decimal numbers keep their digits."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_float=decimal.Decimal)
    except (OSError, json.JSONDecodeError) as error:
        raise Fault(f"{path}: {error}")


def load_studies(folder, names):
    """The named studies of a folder, checked; every file of the folder has to be named."""
    studies = {name: load(folder / f"{name}.json") for name in names}
    unused = {path.stem for path in folder.glob("*.json")} - set(names) - {"pages"}
    if unused:
        raise Fault(f"{folder}: no page names {', '.join(sorted(unused))}")
    for name, study in studies.items():
        missing, unknown = REQUIRED - set(study), set(study) - REQUIRED - OPTIONAL - set(COUNTS)
        if missing or unknown or len(set(COUNTS) & set(study)) != 1:
            raise Fault(f"{folder / name}.json: missing {sorted(missing)}, unknown {sorted(unknown)}")
        for table in study["tables"]:
            for row in table["rows"]:
                if len(row) != len(table["columns"]):
                    raise Fault(f"{folder / name}.json: {len(row)} cells for {len(table['columns'])} columns: {row}")
                for cell in row:
                    if isinstance(cell, dict) and ("value" not in cell or set(cell) - CELL_KEYS):
                        raise Fault(f"{folder / name}.json: not a cell: {cell}")
    return studies


def column(spec):
    return spec if isinstance(spec, dict) else {"name": spec}


def number(value, signed=False):
    text = f"{abs(value):,}"
    if not signed:
        return ("−" if value < 0 else "") + text
    return ("±" if value == 0 else "−" if value < 0 else "+") + text


def cell_text(cell, spec):
    """A cell as a reader sees it."""
    spec = column(spec)
    unit = f" {spec['unit']}" if "unit" in spec else ""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, list):
        return " / ".join(number(value) for value in cell) + unit
    if not isinstance(cell, dict):
        return number(cell, spec.get("signed", False)) + unit
    text = number(cell["value"], spec.get("signed", False))
    if "spread" in cell:
        text += f" ± {number(cell['spread'])}"
    text += unit
    if "low" in cell:
        text += f" ({number(cell['low'])} to {number(cell['high'])})"
    if "p" in cell:
        text += f" (p {number(cell['p'])})"
    if cell.get("mark") == "best":
        text = f"**{text}**"
    text += MARKS.get(cell.get("mark"), "")
    return text + (f" [{number(cell['paper'])}{unit}]" if "paper" in cell else "")


def is_numeric(cell):
    return isinstance(cell, (dict, list, int, decimal.Decimal))


def table_lines(columns, rows):
    """A Markdown table; a column with numbers is aligned to the right."""
    right = [any(is_numeric(row[at]) for row in rows) for at in range(len(columns))]
    texts = [[column(spec)["name"] for spec in columns]]
    texts += [[cell_text(cell, spec) for cell, spec in zip(row, columns)] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in texts]
    return [lines[0], "|" + "|".join("---:" if is_right else "---" for is_right in right) + "|", *lines[1:]]


def wrap(text, first="", rest=""):
    """Lines of at most WIDTH characters, broken outside code spans and links."""
    lines, line = [], first
    for word in re.findall(r"(?:`[^`]*`|!?\[[^\]]*\]\([^)]*\)|\S)+", text):
        if line.strip() not in ("", first.strip()) and len(line) + len(word) + 1 > WIDTH:
            lines.append(line)
            line = rest
        line += (" " if line.strip() and not line.endswith(" ") else "") + word
    return lines + [line]


def command_lines(command):
    """A command line, broken with backslashes; --set stays with its value."""
    lines, line = [], ""
    for word in re.findall(r"(?:--set )?(?:'[^']*'|\"[^\"]*\"|\S)+", command):
        if line and len(line) + len(word) + 3 > WIDTH:
            lines.append(line + " \\")
            line = "   "
        line += (" " if line else "") + word
    return lines + [line]


def study_lines(study):
    """The section of a study on its page."""
    lines = [f"## {study['title']}", "", *wrap(study["what"]), ""]
    commands = [line for command in study["commands"] for line in command_lines(command)]
    lines += ["```", *commands, "```", ""] if commands else []
    recorded = study["recorded"]
    commit = f" (`{recorded['commit']}`)" if recorded.get("commit") else ""
    count = next(f"{label}: {study[key]}" for key, label in COUNTS.items() if key in study)
    lines += [*wrap(f"{count}. Machine: {study['machine']}. Written down {recorded['date']}{commit}."), ""]
    for table in study["tables"]:
        lines += [*wrap(table["caption"]), ""] if table.get("caption") else []
        lines += table_lines(table["columns"], table["rows"]) + [""]
    charts = [[chart["file"], chart["title"]] for chart in study.get("charts", [])]
    for file, alt in charts + study.get("pictures", []):
        lines += [f"![{alt}]({file})", ""]
    for note in study.get("notes", []):
        lines += wrap(note, "- ", "  ")
    return lines + ([""] if study.get("notes") else [])


def page_text(title, intro, tool, data, studies):
    lines = [f"<!-- written by scripts/{tool} from {data}; edit those files -->"]
    lines += ["", f"# {title}", "", *wrap(intro), ""]
    for study in studies:
        lines += study_lines(study)
    return "\n".join(lines).rstrip() + "\n"


def heading_name(title):
    """What GitHub calls a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def splice(page, tool, blocks):
    """The page with the text between each pair of markers replaced: <!-- scripts/TOOL: NAME --> and <!-- end -->."""
    text = page.read_text(encoding="utf-8")
    marker = re.compile(rf"(<!-- scripts/{tool}: (\w+) -->\n).*?(<!-- end -->)", re.S)
    found = [name for _, name, _ in marker.findall(text)]
    if sorted(found) != sorted(blocks):
        raise Fault(f"{page}: has places for {sorted(found)}, expected {sorted(blocks)}")
    return marker.sub(lambda at: at.group(1) + "\n" + "\n".join(blocks[at.group(2)]) + "\n\n" + at.group(3), text)


def run(tool, documentation, make):
    """The command line of a tool: writes what make() returns (path -> text), or compares with --check."""
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        print(documentation, file=sys.stderr)
        return 2
    try:
        files = make()
    except Fault as fault:
        print(f"{tool}: {fault}", file=sys.stderr)
        return 1
    changed = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in changed:
        if arguments:
            print(f"{path.relative_to(ROOT)}: out of date; run scripts/{tool}")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8")
            print(path.relative_to(ROOT))
    return 1 if arguments and changed else 0
