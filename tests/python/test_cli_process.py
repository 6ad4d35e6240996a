"""The program as a shell sees it: exit codes, streams, signals, locales, terminals, imports."""

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("typer", reason="the command line needs the extra `cli`")

from cli_tools import INTERRUPTED, PROGRAM, Terminal, call, spawn
from conftest import directory_digest, numbered, put, run_script, written

import dataset_rt as drt

COMMANDS = ["inspect", "head", "stats", "verify", "repair", "diff", "cat", "sample", "bench"]
COMMANDS += ["unfinished", "help", "report"]


@pytest.mark.parametrize("arguments", [[], *[[name] for name in COMMANDS]], ids=str)
def test_every_help_has_an_example(arguments):
    found = call(*arguments, "--help")
    assert found.code == 0
    assert "Example: dataset-rt " in found.out
    assert found.err == ""


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_of_commands_is_whole_and_fits(columns):
    lines = call("--help", columns=columns).out.splitlines()
    assert max(map(len, lines)) <= columns
    begin = lines.index("Commands:") + 1
    commands = [line.split()[0] for line in lines[begin : lines.index("", begin)]]
    assert {*COMMANDS, "import", "export"} <= {*commands}
    assert not any(line.endswith("...") for line in lines[begin:])


def test_help_is_a_command_too():
    for path in ([], ["verify"], ["import"], ["import", "parquet"]):
        assert call("help", *path) == call(*path, "--help")
    found = call("help", "verifi")
    assert found.code == 2
    assert "no command 'verifi'" in found.err


def test_the_script_and_the_version():
    assert spawn("--version").out == f"dataset-rt {drt.__version__}\n"
    shown = subprocess.run(
        [sys.executable, "-m", "dataset_rt", "--version"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert shown.stdout.decode() == f"dataset-rt {drt.__version__}\n"


def test_an_error_is_a_document_where_documents_are_asked_for(cache, tmp_path):
    for arguments, kind, code in (
        (["head", tmp_path / "nothing"], "NotFound", 1),
        (["cat", cache, 50], "NotFound", 1),
        (["head", cache, "--columns", "nope"], "Usage", 2),
        (["head"], "Usage", 2),
        (["sample", cache, "--seed", -1], "Usage", 2),
        (["inspekt"], "Usage", 2),
    ):
        found = call(*arguments, "--json")
        assert found.code == code, arguments
        error = found.json["error"]
        assert (error["kind"], error["exit_code"]) == (kind, code)
        assert error["message"] in found.err
    # Without it, they are on stderr alone.
    assert call("head", tmp_path / "nothing").out == ""


def test_a_failure_of_the_system_names_the_file(cache, tmp_path):
    (tmp_path / "no").write_text("directory")
    found = call("cat", cache, 0, "-o", tmp_path / "no/file")
    assert (found.code, found.raw) == (1, b"")
    assert found.err.startswith(f"dataset-rt: cannot write {tmp_path / 'no/file'}: ")


def test_wrong_usage_is_2_and_a_failure_1_without_traceback(cache):
    assert spawn("inspekt").code == 2
    failed = spawn("inspect", cache.parent / "nothing")
    assert failed.code == 1
    assert failed.raw == b""
    assert "Traceback" not in failed.err


def test_a_traceback_comes_when_it_is_asked_for(cache):
    arguments = ("cat", cache, 50)
    found = spawn("--debug", *arguments)
    assert found.code == 1
    assert "Traceback" in found.err
    assert "SampleNotFoundError" in found.err
    with pytest.raises(drt.SampleNotFoundError):
        call(*arguments, environment={"DATASET_RT_DEBUG": "1"})
    assert call(*arguments, environment={"DATASET_RT_DEBUG": "0"}).code == 1


def test_help_and_inspect_import_nothing_slow(cache):
    script = """
        import sys
        from dataset_rt.cli.app import run
        sys.argv = ["dataset-rt", *sys.argv[1:]]
        try:
            run()
        except SystemExit:
            pass
        slow = {"polars", "pyarrow", "numpy", "torch", "rich.progress", "rich.markdown"}
        print("slow:", sorted(slow & sys.modules.keys()))
    """
    for arguments in (["--help"], ["inspect", cache], ["verify", cache]):
        assert run_script(script, *arguments).endswith("slow: []\n"), arguments


def test_a_reader_that_goes_away_is_no_error(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"x", {f"column{i}": i for i in range(20)})] * 3000)
    command = subprocess.Popen(
        [*PROGRAM, "head", path, "-n", "3000", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout.readline() == b"{\n"
    command.stdout.close()
    assert command.wait(60) == 1
    assert command.stderr.read() == b""
    command.stderr.close()


def test_control_c_ends_a_long_command_with_130(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(1000))
    terminal = Terminal("bench", path, "--seconds", 600)
    terminal.read(until=b"reading")
    os.killpg(terminal.process.pid, signal.SIGINT)
    assert terminal.finish() in INTERRUPTED
    assert b"Traceback" not in terminal.shown


def test_a_terminal_gets_colours_and_its_width_and_a_pipe_none(cache):
    terminal = Terminal("inspect", cache, columns=60)
    assert terminal.finish() == 0
    assert b"\x1b[32mstructure ok" in terminal.shown
    assert b"\x1b" not in spawn("inspect", cache).raw
    environment = {"NO_COLOR": "1", "COLUMNS": "60"}
    assert b"\x1b" not in spawn("inspect", cache, environment=environment).raw


def test_verify_draws_a_bar_on_a_terminal_and_takes_it_away(cache):
    terminal = Terminal("verify", cache)
    assert terminal.finish() == 0
    assert b"verifying words" in terminal.shown
    # Erased, and the cursor is back.
    assert b"\x1b[2K" in terminal.shown
    assert b"\x1b[?25h" in terminal.shown
    assert spawn("verify", cache).err == ""


def test_cat_keeps_bytes_from_a_terminal_unless_forced(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"\x1b]0;title\x07", {}), (b"two\nlines", {})])
    refused = Terminal("cat", path, 0)
    assert refused.finish() == 1
    assert b"\x1b]0;" not in refused.shown
    assert b"-o FILE" in refused.shown
    forced = Terminal("cat", path, 0, "--force")
    assert forced.finish() == 0
    assert b"\x1b]0;title\x07" in forced.shown
    text = Terminal("cat", path, 1)
    assert text.finish() == 0
    assert b"two\r\nlines" in text.shown


@pytest.mark.parametrize(
    "environment",
    [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "latin-1"}],
    ids=str,
)
def test_every_locale_shows_something(runtime, tmp_path, environment):
    path = written(runtime, tmp_path, [(b"", {"größe": "狐狸"})] * 3, name="größe")
    found = spawn("stats", path, environment=environment)
    assert found.code == 0, found.err
    assert found.err == ""
    assert b"####" in found.raw or environment == {"LC_ALL": "C"}


def test_no_command_writes_into_a_cache_or_beside_it(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(50))
    other = written(runtime, tmp_path / "caches", numbered(51), name="other")
    before = directory_digest(tmp_path)
    times = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    for arguments in (
        ["inspect", path],
        ["inspect", path.parent],
        ["head", path],
        ["stats", path],
        ["verify", path, "--level", "deep"],
        ["diff", path, other],
        ["cat", path, 3],
        ["sample", path, "--balance", "label"],
        ["bench", path, "--seconds", 0.1],
        ["unfinished", path.parent],
    ):
        call(*arguments)
    assert directory_digest(tmp_path) == before
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == times


def test_a_shell_completes_commands_levels_and_columns(cache):
    def completed(line):
        environment = {
            "_DATASET_RT_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        return call(environment=environment).out.split()

    assert "inspect" in completed("dataset-rt ")
    assert completed("dataset-rt verify --level ") == ["quick", "full", "deep"]
    assert completed(f"dataset-rt stats {cache} --columns ") == ["number", "label", "score"]
    assert completed(f"dataset-rt sample {cache} --balance l") == ["label"]
    put(cache / "manifest.json", b"{")
    assert completed(f"dataset-rt stats {cache} --columns ") == []


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_nobody_who_reads(runtime, tmp_path, closed):
    cache = written(runtime, tmp_path, numbered(3))
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *PROGRAM, "verify", cache],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
