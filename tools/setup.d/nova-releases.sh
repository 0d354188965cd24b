# shellcheck shell=bash
# Older releases of Nova with their libvirt driver, for the tests of the layouts that they left on compute nodes: an
# environment each.
stage_nova_releases() {
    local lock
    for lock in "$REPOSITORY"/tools/openstack/nova-*.txt; do
        ensure_environment "tools/openstack/$(basename "$lock")"
    done
}
