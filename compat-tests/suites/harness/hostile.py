"""Requests bent out of shape: valid bytes with one length replaced by a lie."""

from . import wire


class _Lying(wire.Writer):
    """Writes like Writer, but the `nth` length that it writes is a lie. `lengths` counts those it met."""

    def __init__(self, nth=None, lie=0):
        super().__init__()
        self.nth, self.lie, self.lengths = nth, lie, 0

    def length(self, count, flexible, wide):
        wrong = self.lengths == self.nth
        self.lengths += 1
        if flexible:
            self.uvarint(self.lie if wrong else 0 if count is None else count + 1)
        elif wide:
            self.pack("i", max(-(1 << 31), min(self.lie, (1 << 31) - 1)) if wrong else -1 if count is None else count)
        else:
            self.pack("h", max(-(1 << 15), min(self.lie, (1 << 15) - 1)) if wrong else -1 if count is None else count)

    def sized(self, data, flexible, wide):
        self.length(None if data is None else len(data), flexible, wide)
        self.out += data or b""

    def value(self, kind, value, version, flexible):
        if not isinstance(kind, tuple):
            return super().value(kind, value, version, flexible)
        self.length(None if value is None else len(value), flexible, True)
        for item in value or ():
            if isinstance(kind[1], list):
                self.struct(kind[1], item, version, flexible)
            else:
                self.value(kind[1], item, version, flexible)


def filled(fields, version):
    """A body with one element in every array, so that every length of the request is there."""
    out = {}
    for f in fields:
        if not f.at(version):
            continue
        if isinstance(f.kind, tuple):
            inner = f.kind[1]
            out[f.name] = [filled(inner, version)] if isinstance(inner, list) else [wire._default(wire.Field("", inner))]
        elif f.kind == "str":
            out[f.name] = "x"
        elif f.kind == "bytes":
            out[f.name] = b"x"
    return out


def lying_bodies(api, version, lie):
    """The request once per length in it, that length replaced by `lie`."""
    body, flexible = filled(api.request, version), version >= api.flexible
    probe = _Lying()
    probe.struct(api.request, body, version, flexible)
    for nth in range(probe.lengths):
        writer = _Lying(nth, lie)
        writer.struct(api.request, body, version, flexible)
        yield bytes(writer.out)


def request(api, version, body, correlation=7):
    return wire.framed(wire.header(api, version, correlation) + body)
