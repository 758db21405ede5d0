"""Does something in a copy of this process."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable


def in_a_copy(do: Callable[[], None]) -> int:
    """Write the number of the copy, and return how it ended."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            do()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    print(pid, flush=True)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
