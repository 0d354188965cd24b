# shellcheck shell=bash
# Older releases of Nova with their libvirt driver, for the tests of the layouts that they left on compute nodes: an
# environment each, made from tools/openstack/nova-*.txt.
stage_nova_releases() {
    local python lock
    python=$(find_python)
    [[ -n $python ]] || fail "Python 3.11 or newer is missing: run tools/setup packages."
    for lock in "$REPOSITORY"/tools/openstack/nova-*.txt; do
        ensure_environment "$python" "tools/openstack/$(basename "$lock")"
    done
}
