"""Pictures of stored measurements: lines over cells of a study's tables, as SVG, for scripts/results.

A study's "charts" are {"file", "title", "x", "y", "lines", "from", "guess"}. A line is {"name", "points"}, each point
[x, table, row, column]: the cell that is drawn, with its spread. In place of points, "level": [table, row, column] is a
dashed line over the whole width; "colour" is a number in COLOURS. Without "lines" each column of table "from" is a line
over the first column. "guess" is drawn dotted; "low" and "high" are ends of the axis; "log": true for places.
"""

import html
import math

COLOURS = ("#6b7480", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")  # as in the reports of mnemo compare
LEFT, RIGHT, TOP, BOTTOM = 66, 544, 34, 290
ROW = 18  # of the legend
GAP = 3  # between the points of two lines at one place


def measured(study, table, row, column):
    """Mean and spread of a cell."""
    cell = study["tables"][table]["rows"][row][column]
    if isinstance(cell, dict):
        return float(cell["value"]), float(cell.get("spread", 0))
    return float(cell), 0.0


def lines_of(study, chart):
    if "lines" in chart:
        return chart["lines"]
    number = chart["from"]
    table = study["tables"][number]
    names = [spec["name"] if isinstance(spec, dict) else spec for spec in table["columns"]]
    return [{"name": name, "points": [[row[0], number, at, column] for at, row in enumerate(table["rows"])]}
            for column, name in enumerate(names) if column]


def ticks(low, high):
    """Round numbers between two values, about five of them."""
    rough = (high - low) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    return [step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def legend(names, colours, dashed):
    out, x, y = [], 20, BOTTOM + 64
    for at, name in enumerate(names):
        width = 30 + 7 * len(name)
        if x > 20 and x + width > RIGHT:
            x, y = 20, y + ROW
        shape = (f'<path d="M{x} {y - 4}h14" stroke="{colours[at]}" stroke-width="2" stroke-dasharray="5 3"/>' if at in dashed
                 else f'<rect x="{x}" y="{y - 9}" width="10" height="10" rx="2" fill="{colours[at]}"/>')
        out.append(f'{shape}<text x="{x + 18}" y="{y}" fill="#1d2733">{html.escape(name)}</text>')
        x += width
    return out, y + 12


def svg(study, chart):
    lines = lines_of(study, chart)
    points = [[(float(x), *measured(study, *cell)) for x, *cell in line.get("points", [])] for line in lines]
    levels = {at: measured(study, *line["level"]) for at, line in enumerate(lines) if "level" in line}
    known = [p for line in points for p in line] + [(None, *level) for level in levels.values()]
    places = sorted({p[0] for line in points for p in line})
    ends = [m - s for _, m, s in known] + [m + s for _, m, s in known]
    ends += [float(chart[key]) for key in ("guess", "low", "high") if key in chart]
    room = (max(ends) - min(ends)) / 20
    low, high = (float(chart.get(key, limit)) for key, limit in (("low", min(ends) - room), ("high", max(ends) + room)))
    marks = ticks(low, high)
    along = math.log if chart.get("log") else float
    across = lambda x: LEFT + 26 + (along(x) - along(places[0])) / (along(places[-1]) - along(places[0])) * (RIGHT - LEFT - 52)
    up = lambda y: BOTTOM - (min(max(y, low), high) - low) / (high - low) * (BOTTOM - TOP)
    colours = [COLOURS[line.get("colour", at)] for at, line in enumerate(lines)]
    keys, height = legend([line["name"] for line in lines], colours, levels)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 560 {height}" width="560" height="{height}" '
           'font-family="sans-serif" font-size="12" fill="#5b6878">', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="20" fill="#1d2733" font-weight="bold">{html.escape(chart["title"])}</text>']
    for y in marks:
        out.append(f'<path d="M{LEFT} {up(y):.1f}H{RIGHT}" stroke="#e6ebf0"/>'
                   f'<text x="{LEFT - 8}" y="{up(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    free = 0  # labels that would touch the one before are left out
    for x in places:
        text, here = f"{x:,g}", across(x)
        out.append(f'<path d="M{here:.1f} {BOTTOM}v5" stroke="#b9c3ce"/>')
        if here - 4 * len(text) >= free:
            out.append(f'<text x="{here:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{text}</text>')
            free = here + 4 * len(text) + 4
    out.append(f'<path d="M{LEFT} {BOTTOM}H{RIGHT}" stroke="#b9c3ce"/><text x="305" y="{BOTTOM + 40}" text-anchor="middle" '
               f'font-size="13">{html.escape(chart["x"])}</text><text transform="translate(14 {(TOP + BOTTOM) // 2}) rotate(-90)" '
               f'text-anchor="middle" font-size="13">{html.escape(chart["y"])}</text>')
    if "guess" in chart:
        out.append(f'<path d="M{LEFT} {up(float(chart["guess"])):.1f}H{RIGHT}" stroke="#b3412b" stroke-dasharray="2 3"/>')
    for at, (line, colour) in enumerate(zip(points, colours)):
        if at in levels:
            y = up(levels[at][0])
            out.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="{colour}" stroke-width="2" stroke-dasharray="5 3"/>')
            continue
        shift = (at - (len(lines) - 1) / 2) * GAP
        path = " ".join(f"{across(x) + shift:.1f},{up(mean):.1f}" for x, mean, _ in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, mean, spread in line:
            here, bar = across(x) + shift, f'stroke="{colour}" stroke-width="1.3"'
            if spread:
                out.append(f'<path d="M{here:.1f} {up(mean - spread):.1f}V{up(mean + spread):.1f}" {bar}/>')
            out.append(f'<circle cx="{here:.1f}" cy="{up(mean):.1f}" r="4" fill="{colour}"/>')
    return "\n".join(out + keys) + "\n</svg>\n"
