# shellcheck shell=bash
# A /dev/kvm that is there but closed to QEMU's user makes libvirt examine QEMU anew for every domain: 6 to 48 s
# a start instead of 0.4 s (measured). Without udev nobody has set its group and mode, so we do what udev's rule would
# (kvm, 0660). libvirtd notices by itself.

# Reads the mode instead of trying: trying would need root.
can_open_kvm() {
    local user=$1 mode group
    read -r mode group < <(stat -c '%a %G' /dev/kvm)
    # 6: may read and write; the last digit of the mode is for everybody, the one before for the group
    if ((mode % 10 == 6)); then return 0; fi
    ((mode / 10 % 10 == 6)) && [[ " $(id -nG "$user") " == *" $group "* ]]
}

open_kvm() {
    run_as_root chgrp kvm /dev/kvm
    run_as_root chmod 0660 /dev/kvm
}

stage_kvm() {
    local user
    user=$(qemu_user)
    if [[ ! -e /dev/kvm || -z $user ]] || can_open_kvm "$user"; then return; fi
    if [[ " $(id -nG "$user") " != *" kvm "* ]]; then
        say "QEMU's user $user cannot open /dev/kvm and is not in the group kvm: servers start slowly until it can."
        return
    fi
    change "give /dev/kvm to the group kvm with mode 0660, so that QEMU's user $user can open it" open_kvm
}
