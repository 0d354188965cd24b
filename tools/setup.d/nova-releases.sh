# shellcheck shell=bash
# The release of Nova before the one that the services are of, for tests that need no cloud: its classes, a libvirt and a
# database in SQLite.
stage_nova_releases() {
    if ! have apt-get; then
        say "there is no apt-get here, so the tests with an older Nova are skipped: they run on Debian only."
        return
    fi
    ensure_openstack_environment "an older Nova" tools/openstack/nova-33.txt
}
