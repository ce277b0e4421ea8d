"""What `lnetd` writes to stderr: lines for people, or JSON lines for journald, Loki and their kin."""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Any

from ulnet.core.lines import Line

__all__ = ["log_to_stderr"]

_SYSTEMD = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


def log_to_stderr(level: str, form: str) -> None:
    """Begin; `form` is text or json."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if form == "json" else _Lines())
    handler.addFilter(_is_ours_or_grave)
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _is_ours_or_grave(record: logging.LogRecord) -> bool:
    """Libraries tell much of what they do, for which nobody asked."""
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] == "ulnet"


class _Lines(logging.Formatter):
    """`lnetd: warning: text`, behind the local time, or the journal's priority when systemd reads along."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"lnetd: {record.levelname.lower()}: {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        if "JOURNAL_STREAM" not in os.environ:
            return f"{self.formatTime(record)} {text}"
        return "\n".join(_mark(record) + line for line in text.splitlines())


class _Json(logging.Formatter):
    """An object a line: time (UTC), level, logger, event, message, and what the event is about."""

    def format(self, record: logging.LogRecord) -> str:
        line = next((one for one in (record.msg, *(record.args or ())) if isinstance(one, Line)), None)
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        told: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", line.event if line is not None else "other"),
            "message": record.getMessage(),
            **(line.about if line is not None else {}),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(told, ensure_ascii=False)
        return _mark(record) + text if "JOURNAL_STREAM" in os.environ else text


def _mark(record: logging.LogRecord) -> str:
    return f"<{_SYSTEMD.get(record.levelno, 5)}>"
