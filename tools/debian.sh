# shellcheck shell=bash
# Where this machine has Debian's packages from, for those who install Debian into a directory (mmdebstrap).

# A value of /etc/os-release.
release() {
    # shellcheck disable=SC1091 # no file of ours
    (source /etc/os-release && printf '%s\n' "${!1}")
}

# The lines of a sources.list, for this machine's release or for $1: the same mirror, as the package lists name it.
debian_sources() {
    # shellcheck disable=SC2016 # apt-get's own placeholders
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
        awk -v here="^$(release VERSION_CODENAME)" -v wanted="${1:-$(release VERSION_CODENAME)}" '
            { sub(here, wanted, $3); print }'
}

# Proxies and the like, which mmdebstrap does not take from this machine by itself.
download_options() {
    apt-config dump | sed -n '/^Acquire::\(https\?::\|Check-\)/p'
}
