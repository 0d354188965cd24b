# shellcheck shell=bash
# The Debian packages that the Linux guest is built from, unpacked in the cache and not installed.
# They stay as they are until the directory is removed: newer ones would only change what is tested.
readonly KERNEL_PACKAGE=linux-image-cloud-amd64 # made for virtual machines: small, virtio, a serial console
readonly BUSYBOX_PACKAGE=busybox-static

# The package above is an empty one that depends on the kernel of the day.
kernel_of_the_day() {
    apt-cache depends "$KERNEL_PACKAGE" 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }'
}

download_guest_packages() {
    local kernel
    kernel=$(kernel_of_the_day)
    # apt drops root's rights for downloads, and the directory is not for others: say that root may do it.
    [[ -n $kernel ]] && (cd "$1" && apt-get -qq -o APT::Sandbox::User=root download "$kernel" "$BUSYBOX_PACKAGE")
}

fetch_guest_packages() {
    local target=$MILLPOND_CACHE/guests/packages new package
    mkdir -p "$MILLPOND_CACHE/guests"
    rm -rf "$target".?????? # left by a run that was interrupted
    new=$(mktemp -d "$MILLPOND_CACHE/guests/packages.XXXXXX")
    # Package lists may be missing or name a kernel that the mirror has replaced since.
    if ! download_guest_packages "$new" 2>/dev/null; then
        change "refresh the package lists" apt_get update
        download_guest_packages "$new" || fail "Debian's $KERNEL_PACKAGE and $BUSYBOX_PACKAGE cannot be downloaded."
    fi
    for package in "$new"/*.deb; do
        dpkg-deb -x "$package" "$new/root"
        basename "$package" .deb >>"$new/versions"
        rm "$package"
    done
    rm -rf "$target"
    mv "$new" "$target"
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
