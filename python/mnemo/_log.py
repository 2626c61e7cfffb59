"""The log of the library as records of Python's logger "mnemo"."""

import logging

_logger = logging.getLogger("mnemo")


def line(text: str) -> None:
    """Called from C++ for each line, from any thread."""
    prefix = "warning: "
    if text.startswith(prefix):
        _logger.warning("%s", text[len(prefix) :])
    else:
        _logger.info("%s", text)
