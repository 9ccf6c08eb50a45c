"""NVIDIA's Multi-Process Service is started where there is one, and ended whatever happens inside."""

import os
from pathlib import Path

import pytest

from benchmarks.honest import shared_gpu as module
from benchmarks.honest.shared_gpu import CONTROL, FOLDERS, control, has_gpu, shared_gpu, without_service


@pytest.fixture(autouse=True)
def no_folders(monkeypatch):
    for variable in FOLDERS:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(autouse=True)
def clients(monkeypatch) -> list[bool]:
    """Whether each of the next clients is to find a GPU; those after them do."""
    answers: list[bool] = []
    monkeypatch.setattr(module, "has_gpu", lambda: answers.pop(0) if answers else True)
    return answers


def install_control(folder: Path, monkeypatch, status: int = 0) -> Path:
    """Puts a service on the path that writes down how it is called."""
    calls, program = folder / "calls", folder / CONTROL
    said = 'if [ $# = 0 ]; then read line; echo "$line" >> "$CALLS"; [ "$line" = get_server_list ] && echo 17; else'
    program.write_text(f'#!/bin/sh\n{said} echo "$@ $CUDA_MPS_PIPE_DIRECTORY" >> "$CALLS"; fi\nexit {status}\n')
    program.chmod(0o755)
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return calls


def test_the_service_runs_inside_and_ends_after_an_error(tmp_path, monkeypatch):
    calls = install_control(tmp_path, monkeypatch)
    with pytest.raises(KeyError), shared_gpu():
        pipe = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
        assert Path(pipe).is_dir() and calls.read_text() == f"-d {pipe}\n"
        raise KeyError
    assert calls.read_text().splitlines()[1:] == ["quit"]
    assert not Path(pipe).exists() and not FOLDERS.keys() & os.environ.keys()


def test_a_service_that_does_not_start_is_not_ended(tmp_path, monkeypatch):
    calls = install_control(tmp_path, monkeypatch, status=1)
    with shared_gpu():
        assert not FOLDERS.keys() & os.environ.keys()
    assert len(calls.read_text().splitlines()) == 1


def test_a_service_that_somebody_else_started_is_left_alone(tmp_path, monkeypatch):
    calls = install_control(tmp_path, monkeypatch)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "theirs")
    with shared_gpu():
        assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == "theirs"
    assert not calls.exists()


def test_a_machine_without_it_is_as_before(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with shared_gpu():
        assert not FOLDERS.keys() & os.environ.keys()


@pytest.mark.parametrize("waits", [0, 3])
def test_a_server_that_starts_is_waited_for(tmp_path, monkeypatch, clients, waits):
    install_control(tmp_path, monkeypatch)
    clients += [False] * waits
    with shared_gpu():
        assert not clients


@pytest.mark.parametrize(("answers", "replaced"), [([True], 0), ([False, True], 1)], ids=["in use", "faulty"])
def test_a_server_that_takes_no_client_after_a_fault_is_replaced(tmp_path, monkeypatch, clients, answers, replaced):
    calls = install_control(tmp_path, monkeypatch)
    with shared_gpu() as gpu:
        started = len(calls.read_text().splitlines())
        clients += answers
        gpu.replace_faulty(0)
        said = calls.read_text().splitlines()[started:]
    assert gpu.replaced == replaced and not clients
    assert said == ["get_server_list", "shutdown_server 17 -f"] * replaced


def test_a_gpu_that_no_server_brings_back_ends_all(tmp_path, monkeypatch, clients):
    install_control(tmp_path, monkeypatch)
    with shared_gpu() as gpu:
        clients += [False] * 2
        with pytest.raises(RuntimeError, match="no process can use the GPU"):
            gpu.replace_faulty(0)


def test_who_asks_for_a_fault_after_which_the_server_was_replaced_starts_no_client(tmp_path, monkeypatch, clients):
    install_control(tmp_path, monkeypatch)
    with shared_gpu() as gpu:
        clients += [False, True, False]
        gpu.replace_faulty(0)
        gpu.replace_faulty(0)
    assert gpu.replaced == 1 and clients == [False]


def test_a_process_without_the_service_keeps_its_other_variables(tmp_path, monkeypatch):
    install_control(tmp_path, monkeypatch)
    with shared_gpu():
        variables = without_service(os.environ)
        assert variables.keys() == os.environ.keys() - FOLDERS.keys()


def test_neither_a_client_nor_the_service_is_waited_for_for_ever(tmp_path, monkeypatch):
    program = tmp_path / CONTROL
    program.write_text("#!/bin/sh\nexec sleep 900\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(module, "CLIENT", "import time; time.sleep(900)")
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    assert not has_gpu()
    assert control("quit") == ""
