"""Writes benchmarks.md, benchmarks.json and the plots."""

import json

import svg

CAVEATS = {
    "quick": "This is a `--quick` run: two runs per figure instead of five, and less of everything. Read it as a sketch.",
    "smoke": "**This is a smoke run. It shows that every row works and counts right; its figures mean nothing.**",
}


def _cells(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def table(head, rows):
    return "\n".join([_cells(head), _cells(["---"] * len(head)), *map(_cells, rows)]) + "\n"


def write(folder, bench, rows, machine, command, skipped):
    folder.mkdir(parents=True, exist_ok=True)
    scale = bench.scale
    out = ["# Benchmarks\n", f"Written by `{command}` on {machine['date']}; it took {machine['minutes']:.1f} minutes. How to read and repeat it: "
           "[compat-tests/bench/README.md](../compat-tests/bench/README.md).\n"]
    if scale["name"] in CAVEATS:
        out.append(CAVEATS[scale["name"]] + "\n")
    if machine["load_before"] > 1:
        out.append(f"**The machine was not quiet: its load before the run was {machine['load_before']}.** Latencies and throughputs suffer most, CPU per message least.\n")
    out += [note + "\n" for note in bench.notes]
    if skipped:
        out.append("**Not measured, the time was over:** rows " + ", ".join(skipped) + " (or a part of them).\n")
    out.append("**Counts:** every message of every load came back once and in its lane's order.\n" if not bench.troubles else
               "**Counts: something is wrong.**\n\n" + "\n".join(f"* `{trouble}`" for trouble in bench.troubles) + "\n")
    mine = {name: [record for record in bench.records if record["row"] == name] for name in rows}
    verdicts = [verdict for name, row in rows.items() if mine[name] for verdict in row.verdicts(mine[name])]
    out.append("## Budgets\n")
    out.append(table(["Budget", "Measured (ours / theirs)", "Ratio or value", "Reached"],
                     [[v.budget, v.shown, "-" if v.value is None else f"{v.value / 1e6:.1f} MB" if v.limit > 1e6 else f"{v.value:.2f}", "-" if scale["name"] == "smoke" else v.reached] for v in verdicts]))
    for name, row in rows.items():
        if not mine[name]:
            continue
        out.append(f"## {name}. {row.TITLE}\n")
        for one in row.tables(mine[name]):
            out.append(f"{one.title}\n")
            out.append(table(one.head, one.rows))
            if one.words:
                out.append(one.words + "\n")
        for file, title, x, y, series, log_x, log_y in row.plots(mine[name]):
            if svg.lines(folder / f"benchmarks-{file}.svg", title, x, y, series, log_x, log_y):
                out.append(f"![{title}](benchmarks-{file}.svg)\n")
        shown = [bench.commands[key] for key in bench.commands if key.split()[0] == name]
        out.append("The loads, as first run:\n\n```\n" + "\n".join(shown) + "\n```\n")
    out.append("## Machine and versions\n")
    out.append(table(["What", "Value"], [(name, f"{value:.1f}" if isinstance(value, float) else value) for name, value in machine.items()]))
    (folder / "benchmarks.md").write_text("\n".join(out))
    (folder / "benchmarks.json").write_text(json.dumps({"scale": scale, "machine": machine, "command": command, "notes": bench.notes,
                                                        "skipped": skipped, "troubles": bench.troubles, "records": bench.records}, indent=1) + "\n")
