"""Collecting what libraries warn, log and print, instead of spraying it."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

LIBRARIES = ("torch", "onnxscript", "onnx_ir", "transformers")


class _Collector(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextlib.contextmanager
def collected() -> Iterator[list[str]]:
    """Collect the warnings, the log records of level WARNING and above and the printed lines of the block."""
    messages: list[str] = []
    printed = io.StringIO()
    with contextlib.ExitStack() as stack:
        for library in LIBRARIES:
            stack.enter_context(_logged_to(_Collector(messages), library))
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(printed))
        try:
            yield messages
        finally:
            messages += [str(warning.message) for warning in caught]
            messages += [line for line in printed.getvalue().splitlines() if line.strip()]


@contextlib.contextmanager
def _logged_to(handler: logging.Handler, library: str) -> Iterator[None]:
    """Send the records of a library's loggers to `handler` alone: some of its loggers have handlers of their own."""
    top = logging.getLogger(library)
    below = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith(f"{library}.")]
    before = [(logger, logger.handlers, logger.propagate) for logger in (top, *below)]
    for logger in below:
        logger.handlers, logger.propagate = [], True
    top.handlers, top.propagate = [handler], False
    try:
        yield
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
