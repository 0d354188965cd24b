# shellcheck shell=bash
# What tools/nested/build needs beside the other packages: mmdebstrap installs Debian into a directory, and finds the
# keys for it by gpg. It takes the names of the mirrors from the package lists, so there must be some.
readonly NESTED_PACKAGES=(mmdebstrap gpg)

have_debian_lists() {
    # shellcheck disable=SC2016 # apt-get's own placeholder
    [[ -n $(apt-get indextargets --format '$(RELEASE)' 'Created-By: Packages' 'Origin: Debian') ]]
}

stage_nested_packages() {
    if ! have apt-get; then
        say "there is no apt-get here, so the nested machine cannot be built: tests of LVM run on Debian only."
        return
    fi
    if ! have mmdebstrap || ! have gpg; then
        change "refresh the package lists and install packages: ${NESTED_PACKAGES[*]}" \
            install_packages "${NESTED_PACKAGES[@]}"
    elif ! have_debian_lists; then
        change "refresh the package lists" apt_get update
    fi
}
