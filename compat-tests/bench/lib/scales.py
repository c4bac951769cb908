"""How much each row does. `smoke` proves that every row works and measures nothing."""

FULL = {
    "name": "full", "runs": 5, "minutes": 29, "heap": "1G", "warm": 300_000,
    "a": {"codecs": ["none", "lz4", "zstd"], "sizes": [256, 1024], "messages": 300_000},
    "b": {"rates": [2_000, 10_000, 30_000], "seconds": 5},
    "c": {"lanes": [10, 1_000, 100_000, 1_000_000], "messages": 300_000},
    "d": {"lanes": [10, 1_000], "messages": 100_000},
    "e": {"lanes": 10_000, "rate": 4_000, "seconds": 6},
    "f": {"messages": 300_000, "size": 1024},
    "g": {"steps": 10_000},
    "h": {"gigabytes": 10, "starts": 5},
    "i": {"seconds": 20, "kafka": 10_000, "pops": 10_000},
}
QUICK = {
    "name": "quick", "runs": 2, "minutes": 3.8, "heap": "1G", "warm": 100_000,
    "a": {"codecs": ["none", "lz4"], "sizes": [256], "messages": 200_000},
    "b": {"rates": [2_000, 10_000], "seconds": 2},
    "c": {"lanes": [10, 1_000_000], "messages": 200_000},
    "d": {"lanes": [10], "messages": 30_000},
    "e": {"lanes": 1_000, "rate": 2_000, "seconds": 2},
    "f": {"messages": 100_000, "size": 1024},
    "g": {"steps": 2_000},
    "h": {"gigabytes": 1, "starts": 2},
    "i": {"seconds": 5, "kafka": 2_000, "pops": 2_000},
}
SMOKE = {
    "name": "smoke", "runs": 1, "minutes": 3, "heap": "512m", "warm": 1_000,
    "a": {"codecs": ["none", "lz4"], "sizes": [256], "messages": 3_000},
    "b": {"rates": [1_000], "seconds": 1},
    "c": {"lanes": [10, 2_000], "messages": 2_000},
    "d": {"lanes": [10], "messages": 2_000},
    "e": {"lanes": 1_000, "rate": 1_000, "seconds": 1},
    "f": {"messages": 3_000, "size": 1024},
    "g": {"steps": 200},
    "h": {"gigabytes": 0.02, "starts": 1},
    "i": {"seconds": 1, "kafka": 50, "pops": 50},
}
