# shellcheck shell=bash
# The Debian packages that the Linux guest is built from, unpacked in the cache and not installed.
# They stay as they are until the directory is removed: newer ones would only change what is tested.
readonly KERNEL_PACKAGE=linux-image-cloud-amd64 # made for virtual machines: small, virtio, a serial console
readonly BUSYBOX_PACKAGE=busybox-static

# The package above is an empty one that depends on the kernel of the day.
kernel_of_the_day() {
    apt-cache depends "$KERNEL_PACKAGE" | awk '/Depends: linux-image-/ && !found++ { print $2 } END { exit !found }'
}

fetch_guest_packages() {
    local packages=$MILLPOND_CACHE/guests/packages kernel
    kernel=$(with_package_lists kernel_of_the_day)
    unpack_packages "$packages/root" "$kernel" "$BUSYBOX_PACKAGE"
    mv "$packages/root.versions" "$packages/versions"
}

stage_guest_packages() {
    [[ ! -e $MILLPOND_CACHE/guests/packages/versions ]] || return 0
    if ! have apt-get || ! have dpkg-deb; then
        say "there is no apt-get here, so the Linux guest cannot be built: unpack Debian's $BUSYBOX_PACKAGE and the" \
            "kernel that $KERNEL_PACKAGE depends on in $MILLPOND_CACHE/guests/packages/root, and write their versions" \
            "to $MILLPOND_CACHE/guests/packages/versions."
        return
    fi
    change "download Debian's $KERNEL_PACKAGE and $BUSYBOX_PACKAGE into $MILLPOND_CACHE/guests (installs neither)" \
        fetch_guest_packages
}
