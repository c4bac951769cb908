"""a: what a message costs, by codec and size. Produce everything, read everything."""

from figures import NAMES, Table, Verdict, distinct, mb, mid, peak, ratio, show, span

TITLE = "Codecs and sizes"


def run(bench):
    scale = bench.scale["a"]
    count = scale["messages"]
    with bench.against() as servers:
        bench.warm(servers)
        for size in scale["sizes"]:
            for codec in scale["codecs"]:
                for turn, kind, server in bench.by_run(servers):
                    topic, variant = f"a-{codec}-{size}-{turn}", {"codec": codec, "size": size}
                    common = {"topic": topic, "messages": count, "size": size}
                    bench.load(server, kind, turn, "produce", count, variant, codec=codec, **common)
                    bench.load(server, kind, turn, "consume", count, variant, **common)
        for kind, server in servers.items():
            bench.memory(server, kind)


def both(records, **where):
    produce, consume = mid(records, "cpu_us", op="produce", **where), mid(records, "cpu_us", op="consume", **where)
    return None if produce is None or consume is None else produce + consume


def tables(records):
    cost = Table("Broker CPU, µs per message", ["Codec", "Bytes", "Broker", "Produce", "Consume", "Both", "Queen / it", "Sent/s", "Read/s", "Written B/message"])
    for size in distinct(records, "size"):
        for codec in distinct(records, "codec"):
            ours = both(records, server="ours", codec=codec, size=size)
            for kind in distinct(records, "server"):
                here = {"server": kind, "codec": codec, "size": size}
                cost.rows.append([codec, size, NAMES[kind], span(records, "cpu_us", op="produce", **here), span(records, "cpu_us", op="consume", **here),
                                  show(both(records, **here)), show(ratio(ours, both(records, **here))),
                                  show(mid(records, "per_second", op="produce", **here)), show(mid(records, "per_second", op="consume", **here)),
                                  show(mid(records, "written_per_message", op="produce", **here))])
    memory = Table("Memory after it", ["Broker", "VmHWM (peak, with mapped log pages)", "VmRSS", "RssAnon (without mapped files)"],
                   words="Mapped log pages are page cache: the kernel takes them back when it needs them, but they count in VmHWM and VmRSS.")
    for kind in distinct(records, "server"):
        memory.rows.append([NAMES[kind], *(mb(peak(records, key, op="memory", server=kind)) for key in ("VmHWM", "VmRSS", "RssAnon"))])
    return [cost, memory]


def verdicts(records):
    found = []
    for size in distinct(records, "size"):
        for codec in distinct(records, "codec"):
            ours, kafka = (both(records, server=kind, codec=codec, size=size) for kind in ("ours", "kafka"))
            found.append(Verdict(f"CPU per message, {codec}, {size} B: at most half of Kafka's", f"{show(ours)} / {show(kafka)} µs", ratio(ours, kafka), 0.5))
    for key in ("VmHWM", "RssAnon"):
        ours, kafka = (peak(records, key, op="memory", server=kind) for kind in ("ours", "kafka"))
        found.append(Verdict(f"Resident memory ({key}): at most a fifth of Kafka's", f"{mb(ours)} / {mb(kafka)}", ratio(ours, kafka), 0.2))
    return found


def plots(records):
    return []
