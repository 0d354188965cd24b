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

missing_ceph_packages() {
    local package
    while read -r package _; do
        # shellcheck disable=SC2016 # dpkg-query's own placeholder
        if [[ -n $package && $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
            printf '%s\n' "$package"
        fi
    done <<<"$CEPH_PACKAGES"
}

stage_ceph_packages() {
    local missing
    if ! have apt-get; then
        say "there is no apt-get here; the tests with Ceph are skipped unless you install what Debian calls:"
        awk 'NF { print "  " $0 }' <<<"$CEPH_PACKAGES"
        return
    fi
    mapfile -t missing < <(missing_ceph_packages)
    if [[ ${#missing[@]} -gt 0 ]]; then
        change "refresh the package lists and install packages for the tests with Ceph: ${missing[*]}" \
            install_packages "${missing[@]}"
    fi
}
