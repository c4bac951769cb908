"""The tables: one file per subject, each with CASES. A new row is one line in one of them."""

from . import configs, data, generated, groups, offsets, topics


def cases(apis, common):
    """All cases; `common` is {key: range of versions} that both brokers advertise."""
    fixed = [*topics.CASES, *configs.CASES, *data.CASES, *offsets.CASES, *groups.CASES]
    return [*fixed, *generated.cases(apis, common)]
