"""An action that may wait comes in; the thread that it runs in goes out."""

import threading
from collections.abc import Callable


def in_background(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread
