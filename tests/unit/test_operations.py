"""The operation in a server's record: typed in memory, the same JSON as ever on disk."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from millpond.errors import DamagedRecord, NewerRecord
from millpond.model import transition
from millpond.model.layer import VolumeSource
from millpond.model.move import MigrateDetails, Way
from millpond.model.operation import (
    DeleteDetails,
    DiskDetails,
    GrowDetails,
    GrowMethod,
    InsertDetails,
    NativeSnapshotDetails,
    NicDetails,
    NotRunningDetails,
    Operation,
    OtherDetails,
    OverlayDetails,
    RebuildDetails,
    RenameDetails,
    RescueDetails,
    ResizeDetails,
    SettleDetails,
)
from millpond.model.transition import TransitionDetails
from millpond.records import codec
from millpond.servers.recover import VERBS

WHERE = Path("/state/servers/a8af1e4b.json")

RECORD = """{
 "id": "a8af1e4b-1765-49c5-b3e4-703775977dff",
 "name": "web",
 "host": "local",
 "image": {
  "id": "c9a3b0de-6a54-4d1e-8d9e-1f2a3b4c5d6e",
  "name": "debian",
  "format": "raw"
 },
 "flavor": {
  "name": "",
  "vcpus": 1,
  "memory": 536870912,
  "disk": 4194304,
  "ephemeral": 0,
  "swap": 0,
  "extra_specs": {}
 },
 "hardware": {
  "virt_type": "qemu",
  "firmware": "bios",
  "machine": "",
  "disk_bus": "virtio",
  "vif_model": "virtio"
 },
 "networks": [],
 "disks": [
  {
   "role": "disk",
   "backend": "raw",
   "pool": "disks",
   "volume": "a8af1e4b-1765-49c5-b3e4-703775977dff_disk",
   "format": "raw",
   "size": 4194304,
   "target": "vda",
   "content": "image",
   "template": {
    "pool": "base",
    "volume": "873dd608e65e98780e18665cce0f67056f1f3c48",
    "format": "raw"
   },
   "overlay": false,
   "path": "",
   "bus": ""
  }
 ],
 "boot": null,
 "operation": OPERATION,
 "created": "2026-11-16T06:25:06+00:00",
 "schema": 1
}
"""
"""As it was written before the details had types. Only the operation differs."""

OVERLAY = VolumeSource(pool="disks", volume="a8af1e4b-1765-49c5-b3e4-703775977dff_disk.snapshot")

WRITTEN = {
    "create": (
        """{
  "verb": "create",
  "step": "claim",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        None,
    ),
    "start": (
        """{
  "verb": "start",
  "step": "domain",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        None,
    ),
    "stop": (
        """{
  "verb": "stop",
  "step": "stop",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        None,
    ),
    "reboot": (
        """{
  "verb": "reboot",
  "step": "stop",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        None,
    ),
    "pause": (
        """{
  "verb": "pause",
  "step": "pause",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        None,
    ),
    "unpause": (
        """{
  "verb": "unpause",
  "step": "resume",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        None,
    ),
    "delete": (
        """{
  "verb": "delete",
  "step": "stop",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        DeleteDetails(),
    ),
    "delete by force": (
        """{
  "verb": "delete",
  "step": "stop",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "force": "yes"
  }
 }""",
        DeleteDetails(force=True),
    ),
    "grow": (
        """{
  "verb": "grow",
  "step": "claim",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "role": "disk",
   "size": "8388608",
   "way": "resized"
  }
 }""",
        GrowDetails(role="disk", size=8388608, method=GrowMethod.RESIZE),
    ),
    "grow by copy": (
        """{
  "verb": "grow",
  "step": "claim",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "role": "disk",
   "size": "8388608",
   "way": "remade"
  }
 }""",
        GrowDetails(role="disk", size=8388608, method=GrowMethod.COPY_VOLUME),
    ),
    "grow of a logical volume": (
        """{
  "verb": "grow",
  "step": "claim",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "role": "disk",
   "size": "8388608",
   "way": "extended"
  }
 }""",
        GrowDetails(role="disk", size=8388608, method=GrowMethod.LVEXTEND),
    ),
    "grow of a ploop disk": (
        """{
  "verb": "grow",
  "step": "claim",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "role": "disk",
   "size": "8388608",
   "way": "rewritten"
  }
 }""",
        GrowDetails(role="disk", size=8388608, method=GrowMethod.REWRITE_FILE),
    ),
    "disk add": (
        """{
  "verb": "disk add",
  "step": "claim",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "role": "disk.data0"
  }
 }""",
        DiskDetails(role="disk.data0"),
    ),
    "disk remove": (
        """{
  "verb": "disk remove",
  "step": "detach",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "role": "disk.data0"
  }
 }""",
        DiskDetails(role="disk.data0"),
    ),
    "disk attach": (
        """{
  "verb": "disk attach",
  "step": "attach",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "role": "disk.data0"
  }
 }""",
        DiskDetails(role="disk.data0"),
    ),
    "disk detach": (
        """{
  "verb": "disk detach",
  "step": "detach",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "role": "disk.data0"
  }
 }""",
        DiskDetails(role="disk.data0"),
    ),
    "cdrom insert": (
        """{
  "verb": "cdrom insert",
  "step": "volume",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        InsertDetails(),
    ),
    "cdrom eject": (
        """{
  "verb": "cdrom eject",
  "step": "unload",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        None,
    ),
    "nic add": (
        """{
  "verb": "nic add",
  "step": "attach",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "mac": "52:54:00:00:00:50"
  }
 }""",
        NicDetails(mac="52:54:00:00:00:50"),
    ),
    "nic remove": (
        """{
  "verb": "nic remove",
  "step": "detach",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "mac": "52:54:00:00:00:50"
  }
 }""",
        NicDetails(mac="52:54:00:00:00:50"),
    ),
    "evacuate": (
        """{
  "verb": "evacuate",
  "step": "lock",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "move": "{\\"migration\\":\\"m\\",\\"source\\":\\"alder\\",\
\\"destination\\":\\"birch\\",\\"here\\":[],\\"there\\":[],\
\\"ways\\":{\\"disk\\":\\"shared\\"},\\"starts\\":true,\
\\"post_copy\\":false}"
  }
 }""",
        MigrateDetails(
            migration="m",
            source="alder",
            destination="birch",
            here=(),
            there=(),
            ways={"disk": Way.SHARED},
            starts=True,
        ),
    ),
    "transition": (
        """{
  "verb": "transition",
  "step": "move",
  "started": "2026-11-18T03:25:06+00:00",
  "details": {
   "move": "{\\"here\\":[],\\"there\\":[],\\"ways\\":{\\"disk\\":\\"rename\\"},\\"starts\\":true,\
\\"prepares\\":false}"
  }
 }""",
        TransitionDetails(here=(), there=(), ways={"disk": transition.Way.RENAME}, starts=True),
    ),
    "live transition": (
        """{
  "verb": "live transition",
  "step": "move",
  "started": "2026-11-18T03:25:06+00:00",
  "details": {
   "move": "{\\"here\\":[],\\"there\\":[],\\"ways\\":{\\"disk\\":\\"mirror\\"},\\"starts\\":true,\
\\"prepares\\":false}"
  }
 }""",
        TransitionDetails(here=(), there=(), ways={"disk": transition.Way.MIRROR}, starts=True),
    ),
    "migrate": (
        """{
  "verb": "migrate",
  "step": "copy",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "move": "{\\"migration\\":\\"m\\",\\"source\\":\\"alder\\",\
\\"destination\\":\\"birch\\",\\"here\\":[],\\"there\\":[],\
\\"ways\\":{\\"disk\\":\\"copy\\"},\\"starts\\":true,\
\\"post_copy\\":false}"
  }
 }""",
        MigrateDetails(
            migration="m",
            source="alder",
            destination="birch",
            here=(),
            there=(),
            ways={"disk": Way.COPY},
            starts=True,
        ),
    ),
    "live migrate": (
        """{
  "verb": "live migrate",
  "step": "copy",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "move": "{\\"migration\\":\\"m\\",\\"source\\":\\"alder\\",\
\\"destination\\":\\"birch\\",\\"here\\":[],\\"there\\":[],\
\\"ways\\":{\\"disk\\":\\"copy\\"},\\"starts\\":false,\
\\"post_copy\\":false}"
  }
 }""",
        MigrateDetails(
            migration="m",
            source="alder",
            destination="birch",
            here=(),
            there=(),
            ways={"disk": Way.COPY},
            starts=False,
        ),
    ),
    "rebuild": (
        """{
  "verb": "rebuild",
  "step": "volumes",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "image": "c9a3b0de-6a54-4d1e-8d9e-1f2a3b4c5d6e",
   "name": "debian",
   "format": "qcow2",
   "ran": "yes"
  }
 }""",
        RebuildDetails(
            image="c9a3b0de-6a54-4d1e-8d9e-1f2a3b4c5d6e", name="debian", format="qcow2", ran=True
        ),
    ),
    "rescue": (
        """{
  "verb": "rescue",
  "step": "domain",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "ran": "yes"
  }
 }""",
        RescueDetails(ran=True),
    ),
    "unrescue": (
        """{
  "verb": "unrescue",
  "step": "remove",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        RescueDetails(ran=False),
    ),
    "resize save": (
        """{
  "verb": "resize save",
  "step": "copy",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        None,
    ),
    "resize confirm": (
        """{
  "verb": "resize confirm",
  "step": "remove",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        None,
    ),
    "resize revert": (
        """{
  "verb": "resize revert",
  "step": "domain",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        None,
    ),
    "rename": (
        """{
  "verb": "rename",
  "step": "domain",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "before": "db"
  }
 }""",
        RenameDetails(before="db"),
    ),
    "cdrom insert into a drive that it had not": (
        """{
  "verb": "cdrom insert",
  "step": "load",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "adds_drive": "yes"
  }
 }""",
        InsertDetails(adds_drive=True),
    ),
    "resize": (
        """{
  "verb": "resize",
  "step": "claim",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "vcpus": "2",
   "memory": "1048576",
   "flavor": ""
  }
 }""",
        ResizeDetails(vcpus=2, memory=1048576),
    ),
    "resize of a running server": (
        """{
  "verb": "resize",
  "step": "live",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "vcpus": "2",
   "memory": "1048576",
   "flavor": "small",
   "live": "yes"
  }
 }""",
        ResizeDetails(vcpus=2, memory=1048576, flavor="small", live=True),
    ),
    "snapshot of a running server": (
        """{
  "verb": "snapshot",
  "step": "overlay",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "pool": "disks",
   "volume": "a8af1e4b-1765-49c5-b3e4-703775977dff_disk.snapshot",
   "state": "running"
  }
 }""",
        OverlayDetails(overlays={"disk": OVERLAY}, state="running"),
    ),
    "snapshot that is merged by a paused guest": (
        """{
  "verb": "snapshot",
  "step": "thaw",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "pool": "disks",
   "volume": "a8af1e4b-1765-49c5-b3e4-703775977dff_disk.snapshot",
   "state": "running",
   "merging": "yes"
  }
 }""",
        OverlayDetails(overlays={"disk": OVERLAY}, state="running", merging=True),
    ),
    "settle": (
        """{
  "verb": "settle",
  "step": "rebase",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "pool": "disks",
   "volume": "a8af1e4b-1765-49c5-b3e4-703775977dff_disk.snapshot",
   "state": "running"
  }
 }""",
        SettleDetails(overlays={"disk": OVERLAY}, state="running"),
    ),
    "snapshot of several disks of a running server": (
        """{
  "verb": "snapshot",
  "step": "quiesce",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "pool": "disks",
   "volume": "a8af1e4b-1765-49c5-b3e4-703775977dff_disk.snapshot",
   "pool disk.data0": "more",
   "volume disk.data0": "a8af1e4b-1765-49c5-b3e4-703775977dff_disk.data0.snapshot",
   "roles": "disk disk.data0 disk.data1",
   "state": "running",
   "quiesces": "yes"
  }
 }""",
        OverlayDetails(
            overlays={
                "disk": OVERLAY,
                "disk.data0": VolumeSource(
                    pool="more",
                    volume="a8af1e4b-1765-49c5-b3e4-703775977dff_disk.data0.snapshot",
                ),
            },
            roles=("disk", "disk.data0", "disk.data1"),
            state="running",
            quiesces=True,
        ),
    ),
    "snapshot of several disks by their pools": (
        """{
  "verb": "snapshot",
  "step": "freeze",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "roles": "disk disk.data0",
   "state": "running"
  }
 }""",
        NativeSnapshotDetails(roles=("disk", "disk.data0"), state="running"),
    ),
    "snapshot by the pool": (
        """{
  "verb": "snapshot",
  "step": "overlay",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {}
 }""",
        NativeSnapshotDetails(),
    ),
    "snapshot of a server that is off": (
        """{
  "verb": "snapshot",
  "step": "extract",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "still": "yes"
  }
 }""",
        NotRunningDetails(),
    ),
    "a verb that is not known": (
        """{
  "verb": "defragment",
  "step": "image",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "image": "another"
  }
 }""",
        OtherDetails(entries={"image": "another"}),
    ),
}
"""By what was interrupted: what the record said, and what it means."""

DELETED = """{
  "verb": "delete",
  "step": "stop",
  "started": "2026-11-16T06:25:06+00:00",
  "details": %s
 }"""

ONLY_READ = {
    "delete over a snapshot": (
        DELETED
        % """{
   "pool": "disks",
   "volume": "a8af1e4b-1765-49c5-b3e4-703775977dff_disk.snapshot",
   "state": "running"
  }""",
        DeleteDetails(overlays={"disk": OVERLAY}),
    ),
    "delete over a snapshot by force": (
        DELETED
        % """{
   "pool": "disks",
   "volume": "a8af1e4b-1765-49c5-b3e4-703775977dff_disk.snapshot",
   "state": "running",
   "force": "yes"
  }""",
        DeleteDetails(force=True, overlays={"disk": OVERLAY}),
    ),
    "delete over a grow": (
        DELETED
        % """{
   "role": "disk",
   "size": "8388608",
   "way": "remade"
  }""",
        DeleteDetails(),
    ),
    "delete over a grow by force": (
        DELETED
        % """{
   "role": "disk",
   "size": "8388608",
   "way": "resized",
   "force": "yes"
  }""",
        DeleteDetails(force=True),
    ),
    "grow from before there were several ways": (
        """{
  "verb": "grow",
  "step": "extend",
  "started": "2026-11-16T06:25:06+00:00",
  "details": {
   "role": "disk",
   "size": "8388608"
  }
 }""",
        GrowDetails(role="disk", size=8388608, method=GrowMethod.RESIZE),
    ),
}
"""Deleting wrote down all that the operation before it had to say, and not only the overlay."""


def record(operation: str) -> bytes:
    return RECORD.replace("OPERATION", operation).encode()


def test_every_verb_is_here():
    verbs = {json.loads(written)["verb"] for written, _ in WRITTEN.values()}
    assert verbs == {*VERBS, "defragment"}


@pytest.mark.parametrize("name", WRITTEN | ONLY_READ)
def test_what_was_written_before_is_read(name):
    written, details = (WRITTEN | ONLY_READ)[name]
    found = codec.decode_server(record(written), WHERE).operation
    said = json.loads(written)
    assert found == Operation(
        verb=said["verb"], step=said["step"], started=said["started"], details=details
    )


@pytest.mark.parametrize("name", WRITTEN)
def test_it_is_written_as_before(name):
    """So an older version reads it, too: fields that came since it ignores."""
    before = record(WRITTEN[name][0])
    written = codec.encode_server(codec.decode_server(before, WHERE))
    assert known(json.loads(written), json.loads(before)) == json.loads(before)


def known(found, before):
    """What a version knows that had written the other."""
    if isinstance(before, dict):
        return {key: known(found[key], value) for key, value in before.items()}
    if isinstance(before, list):
        return [known(*each) for each in zip(found, before, strict=True)]
    return found


@pytest.mark.parametrize("force", [False, True])
def test_deleting_writes_what_an_older_version_looks_for(force):
    details = DeleteDetails(force=force, overlays={"disk": OVERLAY})
    operation = Operation(verb="delete", step="stop", started="now", details=details)
    server = codec.decode_server(record("null"), WHERE)
    written = codec.plain_server(replace(server, operation=operation))["operation"]["details"]
    forced = {"force": "yes"} if force else {}
    assert written == {"pool": OVERLAY.pool, "volume": OVERLAY.volume} | forced


def test_both_overlays_of_a_settle_are_deleted_with_their_server():
    server = codec.decode_server(record(WRITTEN["settle"][0]), WHERE)
    details = DeleteDetails(overlays=server.overlays)
    operation = Operation(verb="delete", step="stop", started="now", details=details)
    again = codec.encode_server(replace(server, operation=operation))
    found = codec.decode_server(again, WHERE).overlays.values()
    assert [each.volume for each in found] == [OVERLAY.volume, f"{OVERLAY.volume}.rebased"]


@pytest.mark.parametrize("name", WRITTEN | ONLY_READ)
def test_the_overlay_of_a_snapshot_is_known(name):
    written, _ = (WRITTEN | ONLY_READ)[name]
    found = codec.decode_server(record(written), WHERE).overlays
    assert found.get("disk") == (OVERLAY if ".snapshot" in written else None)


@pytest.mark.parametrize(
    "details",
    [
        '{"size": "8388608", "way": "resized"}',
        '{"role": "disk", "size": "large", "way": "resized"}',
        '{"role": "disk", "size": "8388608", "way": "sideways"}',
        '{"role": "disk", "size": 8388608, "way": "resized"}',
        '["disk", "8388608"]',
    ],
)
def test_details_that_cannot_be_are_a_damaged_record(details):
    written = f'{{"verb": "grow", "step": "copy", "started": "", "details": {details}}}'
    with pytest.raises(DamagedRecord):
        codec.decode_server(record(written), WHERE)


def test_a_record_of_a_later_schema_is_refused():
    later = record(WRITTEN["grow"][0]).replace(b'"schema": 1', b'"schema": 2')
    with pytest.raises(NewerRecord):
        codec.decode_server(later, WHERE)
