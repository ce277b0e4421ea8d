"""The manual as a site: it is built without a warning, and each page has its place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.shared import ROOT


@pytest.mark.requirement("doc-005")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for page in ("index", "tutorial", "explanation", "library", "manual", "design/message-path"):
        assert (tmp_path / f"{page}.html").exists()
    library = (tmp_path / "library.html").read_text()
    for name in ("serve_control", "next_event", "MANAGE_REMOTE", "LNetTimeoutError", "ulnet.rpc.Client"):
        assert name in library
    for name in ("Call", "Client", "Inbox", "Node", "Server", "Stream"):
        assert f'id="ulnet.sync.{name}"' in library
    for name in ("begin_stream", "patience_of", "session_is_stale", "close_parts"):
        assert name not in library, "a name that programs have no use for"
