"""The pure wheel: built, installed into a fresh venv, and looked at file by file; broken ones are refused."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import wheels
from support.shared import ROOT
from wheel_check import WheelError, check, installed_files


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with the wheel; its dependencies are those of the tests' environment: no index is asked."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = wheels.build_in(folder, sys.executable, False, "--no-build-isolation", "--no-index")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", ".pyc", ".c"))]
    own = wheels.make_venv(sys.executable, folder / "venv")
    venv = own.parents[1]
    wheels.run([str(own), "-m", "pip", "install", "--no-index", "--no-deps", str(wheel)])
    site = next(venv.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv


@pytest.fixture
def kept(prefix: Path, tmp_path: Path) -> Iterator[Path]:
    """The same; what a test breaks of its files is put back."""
    saved = shutil.copytree(prefix / "share", tmp_path / "share")
    yield prefix
    shutil.rmtree(prefix / "share")
    shutil.move(saved, prefix / "share")


def test_all_of_it_is_installed_and_works(prefix: Path) -> None:
    told = check(prefix, ROOT, compiled=False)
    assert "core in Python" in told and f"{len(list(installed_files(ROOT)))} files" in told


def test_each_man_page_and_completion_has_a_place() -> None:
    sources = {source for source, _ in installed_files(ROOT)}
    for folder in ("docs/man/man1", "docs/man/man8", "packaging/completions", "packaging/systemd"):
        assert set((ROOT / folder).iterdir()) <= sources
    places = {place: source.name for source, place in installed_files(ROOT)}
    assert places["share/man/man8/lnetd.8"] == "lnetd.8"
    assert places["share/ulnet/lnetd.service"] == "lnetd.service"


def test_metadata_name_the_licence_and_its_files(prefix: Path) -> None:
    metadata = next(prefix.glob("lib/python*/site-packages/ulnet-*.dist-info"))
    lines = (metadata / "METADATA").read_text().splitlines()
    assert "License-Expression: Apache-2.0" in lines and "Requires-Python: >=3.11" in lines
    assert (metadata / "licenses/LICENSE").is_file() and (metadata / "licenses/NOTICE").is_file()


@pytest.mark.parametrize("place", ["share/man/man8/lnetd.8", "share/ulnet/lnetd.service"])
def test_a_file_that_is_missing_is_told(kept: Path, place: str) -> None:
    (kept / place).unlink()
    with pytest.raises(WheelError, match=f"^{place} is not installed"):
        check(kept, ROOT, compiled=False)


def test_a_file_that_differs_is_told(kept: Path) -> None:
    with open(kept / "share/man/man1/ulnet.1", "a") as page:
        page.write("more\n")
    with pytest.raises(WheelError, match=r"man1/ulnet\.1 differs from docs/man/man1/ulnet\.1"):
        check(kept, ROOT, compiled=False)


def test_a_pure_wheel_is_no_compiled_one(prefix: Path) -> None:
    with pytest.raises(WheelError, match=r"core/msg\.py, and should be compiled below"):
        check(prefix, ROOT, compiled=True)


def test_a_command_that_fails_is_told(prefix: Path) -> None:
    command = prefix / "bin/lst"
    text = command.read_text()
    try:
        command.write_text("#!/bin/sh\necho no >&2; exit 3\n")
        with pytest.raises(WheelError, match="bin/lst --version ended with 3: no"):
            check(prefix, ROOT, compiled=False)
    finally:
        command.write_text(text)


def test_settings_of_the_caller_do_not_reach_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "HATCH_BUILD_HOOK_ENABLE_MYPYC", "CFLAGS"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    environment = wheels.clean_environment()
    assert not {"PYTHONPATH", "HATCH_BUILD_HOOK_ENABLE_MYPYC", "CFLAGS"} & environment.keys()
    assert environment["PIP_INDEX_URL"] == "https://mirror.example/simple"


def test_an_interpreter_that_does_not_run_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "python3.12"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    assert wheels.find_python("3.12") is None
    assert wheels.find_python("3.13") is None


def test_kinds_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        wheels.main(["3.9"])
    assert "3.9: there are pure, 3.11, 3.12, 3.13" in capsys.readouterr().err


def test_a_new_wheel_replaces_those_of_its_kind_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wheels, "DIST", tmp_path)
    many = "cp311-cp311-manylinux_2_17_x86_64"
    for name in (
        f"ulnet-0.1.0-{many}",
        "ulnet-0.1.0-cp312-cp312-manylinux_2_17_x86_64",
        "ulnet-0.1.0-py3-none-any",
    ):
        (tmp_path / f"{name}.whl").touch()
    (tmp_path / "new").mkdir()
    new = tmp_path / "new" / f"ulnet-0.2.0-{many}.whl"
    new.touch()
    assert wheels.keep(new) == tmp_path / new.name
    assert sorted(path.name for path in tmp_path.glob("*.whl")) == [
        "ulnet-0.1.0-cp312-cp312-manylinux_2_17_x86_64.whl",
        "ulnet-0.1.0-py3-none-any.whl",
        f"ulnet-0.2.0-{many}.whl",
    ]
