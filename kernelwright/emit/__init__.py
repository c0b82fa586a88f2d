"""Stage 6: a `Program` and its `Problem` come in; the text of one standalone Python file goes out."""

from kernelwright.emit.emit import emit

__all__ = ["emit"]
