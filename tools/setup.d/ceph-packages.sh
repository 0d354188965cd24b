# shellcheck shell=bash
# What the tests with Ceph are made of: they start a cluster of their own. Nothing else needs it, and it brings some
# ninety packages along, so this is a stage of its own.
readonly CEPH_PACKAGES='
ceph-mon                           the monitor of the cluster of the tests
ceph-mgr                           its manager
ceph-osd                           its disk
ceph-common                        the commands ceph, rados and rbd
qemu-block-extra                   lets QEMU use RBD images
libvirt-daemon-driver-storage-rbd  lets libvirt have RBD pools
'

stage_ceph_packages() {
    if have apt-get; then
        install_missing_packages "$CEPH_PACKAGES" "for the tests with Ceph"
    else
        say "there is no apt-get here; the tests with Ceph are skipped unless you install what Debian calls:"
        awk 'NF { print "  " $0 }' <<<"$CEPH_PACKAGES"
    fi
}
