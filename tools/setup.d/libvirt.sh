# shellcheck shell=bash
# virtlogd and libvirtd: systemd starts them where it runs; elsewhere (containers, chroots, small machines) we do.
readonly QEMU_CONF=/etc/libvirt/qemu.conf
readonly LIBVIRT_URI=qemu:///system

systemd_runs() {
    [[ -d /run/systemd/system ]] # sd_booted(3)
}

# Connecting is enough: anything more would make libvirt examine every QEMU that is installed.
connect_libvirtd() {
    run_as_root timeout 10 virsh -q -c "$LIBVIRT_URI" uri >/dev/null
}

libvirtd_answers() {
    have virsh && connect_libvirtd 2>/dev/null
}

virtlogd_runs() {
    local pid
    pid=$(cat /run/virtlogd.pid 2>/dev/null) && [[ $(cat "/proc/$pid/comm" 2>/dev/null) == virtlogd ]]
}

wait_for_libvirtd() {
    local tries=100 # of 0.1 s; it takes less than one second
    while ((tries-- > 0)); do
        if libvirtd_answers; then return; fi
        sleep 0.1
    done
    connect_libvirtd || fail "libvirtd does not answer; above is what virsh said. Run libvirtd in the foreground to" \
        "see why (if it ends without a word, look whether $QEMU_CONF consists of an empty line)."
}

start_libvirtd() {
    if systemd_runs; then
        run_as_root systemctl start libvirtd
    else
        run_as_root libvirtd --daemon
    fi
    wait_for_libvirtd
}

restart_libvirtd() {
    if systemd_runs; then
        run_as_root systemctl restart libvirtd
    else
        local pid
        pid=$(cat /run/libvirtd.pid)
        run_as_root bash -c "kill $pid" # bash has its own; the program is missing on the smallest machines
        while [[ -d /proc/$pid ]]; do sleep 0.1; done
        run_as_root libvirtd --daemon
    fi
    wait_for_libvirtd
}

# Starts the smallest domain that opens a device, as servers do, stopped before its first instruction; it goes when virsh
# does.
# setsid: on a terminal virsh would look for polkit, and complain where there is none.
try_domain() {
    run_as_root setsid --wait virsh -q -c "$LIBVIRT_URI" create --paused --autodestroy /dev/stdin \
        2>&1 >/dev/null <<XML
<domain type='qemu'>
  <name>millpond-setup-$$</name>
  <memory unit='MiB'>16</memory>
  <os><type arch='x86_64'>hvm</type></os>
  <devices>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
</domain>
XML
}

write_namespaces() {
    local new
    new=$(mktemp)
    printf 'namespaces = [ ]\n' | with_our_block "$QEMU_CONF" >"$new"
    run_as_root install -m 0600 "$new" "$QEMU_CONF" # the mode that the package gives it
    rm -f "$new"
    restart_libvirtd
}

# Our own line may be there from a run that was interrupted before libvirtd was restarted.
others_set_namespaces() {
    run_as_root sed "$OUR_BLOCK d" "$QEMU_CONF" | grep '^ *namespaces' >/dev/null # -q would break sed's pipe
}

# libvirt gives each QEMU a /dev of its own. Where that cannot be done (a container without mounts), or is done outside
# of the root directory (a chroot), no domain starts; this is the switch for it.
check_domains_start() {
    local error
    if error=$(try_domain); then return; fi
    if [[ $error != *namespace* && $error != *mount* && $error != */dev/* ]] || others_set_namespaces; then
        fail "libvirt cannot start a domain: $error"
    fi
    change "set 'namespaces = [ ]' in $QEMU_CONF and restart libvirtd, as domains do not start: ${error//$'\n'/ }" \
        write_namespaces
    error=$(try_domain) || fail "libvirt still cannot start a domain: $error"
}

# What a started domain depends on; as long as this is the same, it need not be tried again.
domain_recipe() {
    libvirtd --version
    qemu-system-x86_64 --version
    cat /proc/sys/kernel/random/boot_id
    stat -c '%n %Y' "$QEMU_CONF"
}

stage_libvirt() {
    local stamp=$MILLPOND_CACHE/domains-start
    if ! systemd_runs && ! virtlogd_runs; then
        change "start virtlogd, which keeps the servers' consoles" run_as_root virtlogd --daemon
    fi
    if ! libvirtd_answers; then
        change "start libvirtd" start_libvirtd
    fi
    if [[ -e $stamp && $(cat "$stamp") == "$(domain_recipe)" ]]; then return; fi
    change "start one paused domain for a moment, to see that it can" check_domains_start
    $DRY_RUN || domain_recipe >"$stamp"
}
