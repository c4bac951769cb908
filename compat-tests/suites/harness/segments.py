"""The one place that knows bytes of a segment file: where its frames are, so that a test can damage exactly what it means to.

A segment starts with a header of 4096 bytes (all zero in a segment that is only prepared). A frame is 48 bytes of header, whose
first four are the payload's length in little-endian, the payload, and zeros up to a multiple of eight.
"""

HEADER, FRAME_HEADER = 4096, 48


def frames(path):
    """(start, end) of every frame in a segment, as far as lengths lead; the caller trusts the file."""
    data, at, out = path.read_bytes(), HEADER, []
    while at + FRAME_HEADER <= len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        if size == 0 and not any(data[at : at + FRAME_HEADER]):
            break
        end = at + (FRAME_HEADER + size + 7 & ~7)
        if end > len(data):
            break
        out.append((at, end))
        at = end
    return out


def used(segments):
    """The segments that hold frames, in order; the last of them is the one being written."""
    return [path for path in segments if frames(path)]
