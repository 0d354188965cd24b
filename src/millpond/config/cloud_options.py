"""Options of the services of OpenStack, under nova.conf's names where Nova has them."""

from oslo_config import cfg

HTTP = "http"
GLANCE = "glance"
CINDER = "cinder"
PLACEMENT = "placement"

_HTTP_OPTIONS = (
    cfg.IntOpt(
        "connect_timeout",
        default=10,
        min=1,
        help="Seconds that a server of images has to accept a connection.",
    ),
    cfg.IntOpt(
        "read_timeout",
        default=60,
        min=1,
        help="Seconds that it has to answer, and to send each further 256 KiB.",
    ),
    cfg.IntOpt(
        "retries",
        default=3,
        min=0,
        help="How often a download that broke off is gone on with or begun again.",
    ),
)

CLOUD_AUTH = (
    "auth_url",
    "username",
    "password",
    "project_name",
    "project_id",
    "user_domain_name",
    "user_domain_id",
    "project_domain_name",
    "project_domain_id",
)
"""By keystoneauth's names, as in nova.conf."""


def _cloud_options(service: str, others: str = "") -> tuple[cfg.Opt, ...]:
    """Where a service is, and who asks; ``others`` tells what rules where nothing is said."""
    return (
        cfg.StrOpt("cloud", default="", help=f"Name of a cloud in clouds.yaml. {others}"),
        cfg.StrOpt(
            "auth_type",
            default="",
            help="How to prove who we are, such as password; none asks no Keystone and needs "
            f"{service}'s URL.",
        ),
        *(
            cfg.StrOpt(
                name,
                default="",
                secret=name == "password",
                help=f"Keystone's {name.replace('_', ' ')}, for auth_type = password.",
            )
            for name in CLOUD_AUTH
        ),
        cfg.StrOpt(
            "cafile", default="", help="File of the certificates to trust; empty: usual ones."
        ),
        cfg.BoolOpt("insecure", default=False, help="Do not verify certificates."),
    )


_GLANCE_OPTIONS = (
    *_cloud_options(
        "Glance",
        "Without it, without auth_type and without endpoint_override the environment rules "
        "(OS_CLOUD, OS_AUTH_URL, ...).",
    ),
    cfg.StrOpt(
        "endpoint_override",
        default="",
        help="Glance's URL; empty asks Keystone's catalogue.",
    ),
    cfg.StrOpt("region_name", default="", help="Region of the cloud."),
    cfg.IntOpt(
        "num_retries",
        default=3,
        min=0,
        help="How often a download from Glance that broke off is gone on with.",
    ),
    cfg.BoolOpt(
        "verify_glance_signatures",
        default=False,
        help="Only signed images are taken. Needs millpond[signatures], and the certificates in "
        "the key manager that [key_manager] and [barbican] lead to.",
    ),
    cfg.BoolOpt(
        "enable_certificate_validation",
        default=False,
        help="Only images are taken that are signed with a certificate of today that leads to a "
        "trusted one.",
    ),
    cfg.ListOpt(
        "default_trusted_certificate_ids",
        default=[],
        help="Ids in the key manager of the certificates that are trusted: issuers, up to a root.",
    ),
)

_CINDER_OPTIONS = (
    *_cloud_options("Cinder", "Without it and without auth_type, [glance] says who asks."),
    cfg.StrOpt(
        "endpoint_template",
        default="",
        help="Cinder's URL, in which %(project_id)s may stand; empty asks Keystone's catalogue.",
    ),
    cfg.StrOpt("os_region_name", default="", help="Region of the cloud."),
    cfg.IntOpt(
        "http_retries",
        default=3,
        min=0,
        help="How often a question to Cinder that was not answered is asked again.",
    ),
    cfg.StrOpt(
        "image_volume_project_id",
        default="",
        help="Id of the project that owns the volumes of Glance's Cinder store "
        "(cinder_store_project_name); no other volume is linked. Empty: the project we ask for.",
    ),
)

_PLACEMENT_OPTIONS = (
    *_cloud_options(
        "Placement", "Without it and without auth_type, Placement is a part of this program."
    ),
    cfg.StrOpt(
        "endpoint_override",
        default="",
        help="Placement's URL; empty asks Keystone's catalogue.",
    ),
    cfg.StrOpt("region_name", default="", help="Region of the cloud."),
    cfg.IntOpt(
        "connect_retries",
        default=3,
        min=0,
        help="How often a question to Placement that was not answered is asked again.",
    ),
)

CLOUD_OPTIONS = {
    HTTP: _HTTP_OPTIONS,
    GLANCE: _GLANCE_OPTIONS,
    CINDER: _CINDER_OPTIONS,
    PLACEMENT: _PLACEMENT_OPTIONS,
}
