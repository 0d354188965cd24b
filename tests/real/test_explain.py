"""What explain says that a server would write, of the template and of each disk."""

from tests.support.millpond import converted


def test_it_says_what_each_disk_writes(millpond, micro_guest, workdir):
    millpond.configure("images_type_mapping = qcow2:qcow2, raw:raw")
    millpond.ok("image", "add", converted(micro_guest, "qcow2", workdir), "--name", "overlaid")
    millpond.ok("image", "add", micro_guest.path, "--name", "copied")
    assert "Each disk  a copy: 1 MiB to write at the most" in millpond.ok("explain", "copied")
    shown = millpond.ok("explain", "overlaid")
    assert "Each disk" in shown
    assert "a copy: " not in shown
