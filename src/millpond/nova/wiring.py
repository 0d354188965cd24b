"""The engine as nova.conf configures it, with its records in Nova's database."""

from dataclasses import replace

import nova.conf

from millpond import config
from millpond.config import ImageSourceOption
from millpond.engine import Engine
from millpond.nova.records import NovaRecords
from millpond.records.journal import Watch, unwatched


def engine(watch: Watch = unwatched) -> Engine:
    conf = nova.conf.CONF
    settings = replace(
        config.settings_from(conf), image_source=ImageSourceOption.GLANCE, own_process=False
    )
    return Engine(settings, watch, NovaRecords(conf.host))
