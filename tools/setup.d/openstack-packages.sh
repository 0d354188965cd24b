# shellcheck shell=bash
# What the tests with OpenStack's services are made of. The services come from Python's registry into an environment of
# their own in the cache, named by the checksum of tools/openstack/requirements.txt. Debian's tgt and RabbitMQ are
# unpacked beside them and not installed: installed, they would be started, and would listen on every address of this
# machine.
readonly OPENSTACK_PACKAGES='
python3-rbd       lets Cinder and Glance use Ceph; the registry has none
python3-rados     the same
qemu-block-extra  lets QEMU use iSCSI targets
libaio1t64|libaio1        for tgt
libibverbs1       for tgt
librdmacm1t64|librdmacm1  for tgt
mariadb-server-core  the database of a whole cloud; starts nothing by itself
libsctp1          for RabbitMQ
genisoimage       with which Nova writes config drives
'
readonly RABBITMQ_PACKAGES=(
    rabbitmq-server erlang-base erlang-asn1 erlang-crypto erlang-eldap erlang-inets erlang-mnesia erlang-os-mon
    erlang-parsetools erlang-public-key erlang-runtime-tools erlang-ssl erlang-syntax-tools erlang-tools erlang-xmerl
)

stage_openstack_packages() {
    local tgt=$MILLPOND_CACHE/openstack/tgt rabbitmq=$MILLPOND_CACHE/openstack/rabbitmq
    if ! have apt-get; then
        say "there is no apt-get here, so the tests with OpenStack's services are skipped: they run on Debian only."
        return
    fi
    install_missing_packages "$OPENSTACK_PACKAGES" "for the tests with OpenStack's services"
    ensure_openstack_environment "the services" tools/openstack/requirements.txt
    if [[ ! -e $tgt ]]; then
        change "unpack Debian's tgt in $tgt (does not install it)" unpack_packages "$tgt" tgt
    fi
    if [[ ! -e $rabbitmq ]]; then
        change "unpack Debian's RabbitMQ in $rabbitmq (does not install it)" \
            unpack_packages "$rabbitmq" "${RABBITMQ_PACKAGES[@]}"
    fi
}
