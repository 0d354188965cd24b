"""What --json prints is JSON, of one command after the other."""

import json

COMMANDS = """\
image add {guest} --name guest
image list
image show guest
image set guest --label os=none
image rename guest other
image rename other guest
image save guest {saved}
server create web --image guest --memory 16M --network none --no-start
server create new --image guest --memory 16M --network none --dry-run
server list
server show web
server show --all
server start web
server reboot web --hard
server stop web --force
server set web --label tier=web
server rename web shop
server resize shop --disk 2M
server disk add shop --size 1M
server disk list shop
server disk detach shop disk.data0
server disk attach shop disk.data0
server disk grow shop disk.data0 --size 2M
server disk remove shop disk.data0 --yes
server nic add shop --network user
server snapshot shop snap
cache list
cache fetch guest
cache pin guest
cache unpin guest
cache verify --all
cache prune --dry-run
cache prune
host list
host list --refresh
host show local
network list
pool list
pool show nova-disks-pool
transition status
explain guest
config check
config show
doctor
doctor --repair
doctor --placement
doctor --adopt
image remove snap
server delete shop
"""


def test_what_is_asked_for_as_json_is_json(millpond, micro_guest, workdir):
    for line in COMMANDS.format(guest=micro_guest.path, saved=workdir / "saved.raw").splitlines():
        done = millpond.run(*line.split(), "--json")
        assert done.returncode == 0, (line, done.stderr)
        assert isinstance(json.loads(done.stdout), dict | list), line
