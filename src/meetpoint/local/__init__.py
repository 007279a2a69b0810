"""A whole network of real brokers in this process, for tests and notebooks: `meetpoint.local(brokers=8)`.

The package is named as the function is, so it can be called itself, whichever of the two a program met first.
"""

import sys
from types import ModuleType
from typing import Any

from meetpoint.local.local import Local, LocalNetwork
from meetpoint.local.local import local as _local

__all__ = ["Local", "LocalNetwork"]


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Local:
        return _local(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
