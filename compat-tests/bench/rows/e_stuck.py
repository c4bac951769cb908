"""e: one lane in a hundred is leased and never acked. The others must not notice."""

from figures import Table, Verdict, mid, ratio, show, span

TITLE = "One lane in a hundred stuck"


def run(bench):
    scale = bench.scale["e"]
    count = int(scale["rate"] * scale["seconds"])
    with bench.servers("ours") as servers:
        for turn in range(bench.runs):
            for stuck in (0, 100) if turn % 2 == 0 else (100, 0):
                bench.load(servers["ours"], "ours", turn, "flow", count, {"stuck": stuck}, topic=f"e-{stuck}-{turn}", messages=count,
                           lanes=scale["lanes"], rate=scale["rate"], stuck_every=stuck, batch=10)


def tables(records):
    table = Table("End to end over HTTP of the lanes that are not stuck, ms", ["Stuck", "p50", "p99", "p99.9", "CPU µs/message", "Pops"])
    for stuck, name in ((0, "none"), (100, "1 %")):
        table.rows.append([name, *(span(records, f"e2e.{key}", stuck=stuck) for key in ("p50_ms", "p99_ms", "p999_ms")), span(records, "cpu_us", stuck=stuck), show(mid(records, "pops", stuck=stuck))])
    return [table]


def verdicts(records):
    with_stuck, without = (mid(records, "e2e.p99_ms", stuck=stuck) for stuck in (100, 0))
    return [Verdict("p99 of healthy lanes beside 1 % stuck ones: within 20 % of none stuck (yardstick, not in the design)", f"{show(with_stuck)} / {show(without)} ms", ratio(with_stuck, without), 1.2)]


def plots(records):
    return []
