#!/usr/bin/env python3
"""Holds trace files against Perfetto's published schema (PyPI: perfetto).

Usage: check.py FILE...

Every byte of each file has to belong to a field that the schema has, with the type that it has there, and what
the events refer to (tracks, names) has to be in the file. Prints what the calls waited for.
"""
import collections
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema


def unknown(message, path=""):
    """Returns the fields of a message, and of those in it, that the schema does not know."""
    found = [f"{path}{message.DESCRIPTOR.name}.{it.field_number}" for it in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        for each in value if field.is_repeated else [value]:
            found += unknown(each, f"{path}{message.DESCRIPTOR.name}.")
    return found


def check(name):
    with open(name, "rb") as file:
        data = file.read()
    trace = schema.Trace()
    trace.ParseFromString(data)
    bad = unknown(trace)
    assert not bad, f"{name}: fields that are not in the schema: {sorted(set(bad))}"
    assert trace.SerializeToString() and trace.ByteSize() == len(data), f"{name}: written otherwise"
    tracks, names, depth = {}, {}, collections.Counter()
    events, parts, flows = collections.Counter(), collections.Counter(), collections.Counter()
    begun = collections.defaultdict(list)
    ordered = []
    for number, packet in enumerate(trace.packet):
        sequence = packet.trusted_packet_sequence_id
        assert sequence, f"{name}: packet {number} has no sequence"
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks, f"{name}: two tracks {track.uuid}"
            assert not track.parent_uuid or track.parent_uuid in tracks, f"{name}: no parent"
            tracks[track.uuid] = track
        for entry in packet.interned_data.event_names:
            names[sequence, entry.iid] = entry.name
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in tracks, f"{name}: an event without a track"
            assert not event.name_iid or (sequence, event.name_iid) in names, f"{name}: no name"
            assert event.name_iid or event.type in (event.TYPE_SLICE_END, event.TYPE_COUNTER)
            is_counter = tracks[event.track_uuid].HasField("counter")
            assert is_counter == (event.type == event.TYPE_COUNTER), f"{name}: counter"
            ordered.append((packet.timestamp, sequence, event))
    ordered.sort(key=lambda it: it[0])
    for at, sequence, event in ordered:
        events[schema.TrackEvent.Type.Name(event.type)] += 1
        stack = begun[event.track_uuid]
        flows.update(event.flow_ids)
        if event.type == event.TYPE_SLICE_BEGIN:
            stack.append((at, names[sequence, event.name_iid]))
            assert len(stack) <= 2, f"{name}: {stack}"
        elif event.type == event.TYPE_SLICE_END:
            since, what = stack.pop()
            if stack:
                parts[what] += at - since
    assert not any(begun.values()), f"{name}: slices without an end"
    print(f"{name}: {len(data)} bytes, {len(tracks)} tracks, {dict(events)}")
    whole = sum(1 for count in flows.values() if count == 2)
    print(f"  {len(flows)} arrows, {whole} of them with both ends")
    for what, nanos in parts.most_common():
        print(f"  {nanos / 1000:12.1f} us  {what}")


for path in sys.argv[1:]:
    check(path)
