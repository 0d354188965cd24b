# shellcheck shell=bash
# Each server has a serial console, for which QEMU opens a terminal as its own user. Where /dev/pts was mounted without
# ptmxmode, as some containers do, only root can: then no server starts.

stage_terminals() {
    local user
    user=$(qemu_user)
    if [[ ! -e /dev/ptmx || -z $user || $(stat -Lc %a /dev/ptmx) == *6 ]]; then return; fi
    say "QEMU's user $user cannot open /dev/ptmx, so no server starts: mount -o remount,ptmxmode=0666 /dev/pts"
}
