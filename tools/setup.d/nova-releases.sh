# shellcheck shell=bash
# Older releases of Nova, an environment each: those that our driver runs with, too, for tests without a cloud, and those
# whose libvirt driver laid out disks that are brought into pools.
stage_nova_releases() {
    local lock
    if ! have apt-get; then
        say "there is no apt-get here, so the tests with older releases of Nova are skipped: they run on Debian only."
        return
    fi
    for lock in "$REPOSITORY"/tools/openstack/nova-*.txt; do
        ensure_environment "tools/openstack/$(basename "$lock")" --system-site-packages
    done
}
