"""protobuf.py: as much of protobuf as tests read: numbers, and messages of fields."""


def varint(data, at):
    """The number at a place, and the place behind it."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def varints(data):
    out, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        out.append(value)
    return out


def fields(data, fixed={}):
    """The fields of a message as (number, value). fixed: the wire types of fixed size that it may
    have, and their bytes."""
    out, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            assert key & 7 == 2 or key & 7 in fixed, key
            size, at = (fixed[key & 7], at) if key & 7 in fixed else varint(data, at)
            at, value = at + size, data[at:at + size]
        out.append((key >> 3, value))
    return out
