# shellcheck shell=bash
# The packages, by their Debian names: package, a command (or file) that shows it is there on a machine
# without apt-get, and what it is for.
readonly PACKAGES='
ca-certificates         -                     certificates to fetch Python packages
python3                 python3               Python 3.11 or newer
python3-venv            -                     virtual environments
python3-dev             -                     to build libvirt-python
gcc                     gcc                   to build libvirt-python
libc6-dev               -                     to build libvirt-python
pkg-config              pkg-config            to build libvirt-python
libvirt-dev             -                     to build libvirt-python
libvirt-daemon-system   libvirtd              the hypervisor daemon, its users and its configuration
libvirt-clients         virsh                 the command that asks it
dnsmasq-base            dnsmasq               addresses on the networks that libvirt makes
openssh-client          ssh                   logs into servers
qemu-system-x86         qemu-system-x86_64    runs the servers
qemu-utils              qemu-img              inspects and converts disks
seabios                 -                     BIOS for servers
ovmf                    -                     UEFI for servers
apparmor                -                     apparmor_parser, which checks the rule for the pools
e2fsprogs               mke2fs                file systems for tests and for the Linux guest
xfsprogs                mkfs.xfs              file systems with reflinks, for tests
btrfs-progs             mkfs.btrfs            file systems with reflinks, for tests
nasm                    nasm                  assembles the 512-byte guest
mtools                  mcopy                 builds the Linux guest
dosfstools              mkfs.vfat             builds the Linux guest
fdisk                   sfdisk                builds the Linux guest
syslinux                syslinux              builds the Linux guest
syslinux-common         -                     builds the Linux guest
cpio                    cpio                  builds the Linux guest
xz-utils                xz                    unpacks kernel modules for the Linux guest
rsync                   rsync                 what moves of servers are compared with, in make bench-moves
zstd                    zstd                  unpacks images that end in .zst
'

# Not Debian: say what is needed, and go on if the commands are there. Not everything is a command, so the list is also
# shown before .venv is made for the first time.
check_commands() {
    local package command purpose missing=()
    while read -r package command purpose; do
        [[ -z $command || $command == - ]] || have "$command" || missing+=("$command")
    done <<<"$PACKAGES"
    if [[ ${#missing[@]} -eq 0 && -e $REPOSITORY/.venv ]]; then return; fi
    say "there is no apt-get here; please install what Debian calls:"
    while read -r package command purpose; do
        [[ -z $package ]] || printf '  %-22s %s\n' "$package" "$purpose"
    done <<<"$PACKAGES"
    [[ ${#missing[@]} -eq 0 ]] || $DRY_RUN || fail "these commands are missing: ${missing[*]}."
}

stage_packages() {
    if have apt-get; then
        install_missing_packages "$PACKAGES"
    else
        check_commands
    fi
}
