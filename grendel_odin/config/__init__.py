"""Settings: YAML files and `key=value` overrides become dataclasses that live with their owners."""

from grendel_odin.config.binder import bind
from grendel_odin.config.dump import dump, flat
from grendel_odin.config.entry import BROKEN_RUN, CommandLine, exit_code
from grendel_odin.config.errors import BrokenRun, UserError
from grendel_odin.config.explain import explain
from grendel_odin.config.files import replacing, writing
from grendel_odin.config.setting import setting
from grendel_odin.config.suggest import unknown_flags

__all__ = [
    "BROKEN_RUN",
    "BrokenRun",
    "CommandLine",
    "UserError",
    "bind",
    "dump",
    "exit_code",
    "explain",
    "flat",
    "replacing",
    "setting",
    "unknown_flags",
    "writing",
]
