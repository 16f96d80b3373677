"""Files in memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_of(data: bytes) -> Iterator[Path]:
    """A file with the content `data`, until the block ends."""
    descriptor = os.memfd_create("netbench-fuzz")
    try:
        os.pwrite(descriptor, data, 0)
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
