"""Settings: YAML files and `key=value` overrides become dataclasses that live with their owners."""

from grendel_odin.config.binder import bind
from grendel_odin.config.dump import dump
from grendel_odin.config.entry import exit_code
from grendel_odin.config.errors import UserError
from grendel_odin.config.explain import explain
from grendel_odin.config.files import replacing
from grendel_odin.config.flags import unknown_flags
from grendel_odin.config.setting import setting

__all__ = [
    "UserError",
    "bind",
    "dump",
    "exit_code",
    "explain",
    "replacing",
    "setting",
    "unknown_flags",
]
