"""A request to stop is acknowledged once, on the stream that the user sees, and nowhere else."""

from __future__ import annotations

import contextlib
import io
import os
import signal

import pytest

from echoless.runtime import StopRequest

ACKNOWLEDGED = "stopping after this step and saving"


def test_a_scheduler_that_repeats_itself_is_answered_once(capfd):
    with StopRequest() as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
    assert stop.requested == "SIGTERM" and capfd.readouterr().err.count(ACKNOWLEDGED) == 1


def test_a_second_ctrl_c_stops_at_once(capfd):
    with StopRequest(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert capfd.readouterr().err.count(ACKNOWLEDGED) == 1


def test_nothing_reaches_the_terminal_past_a_redirection_into_memory(capfd):
    with contextlib.redirect_stderr(io.StringIO()), StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.requested == "SIGTERM" and capfd.readouterr().err == ""
