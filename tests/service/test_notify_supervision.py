"""What the service manager's variables ask for, whoever has written them."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.notify.supervision import Supervision, take_supervision

SOCKET = {"NOTIFY_SOCKET": "/run/notify"}


def take(**environ: str) -> Supervision:
    return take_supervision(environ)


def test_without_a_manager_nothing_is_asked_for() -> None:
    """An empty name is none, and a time without an address is nobody's."""
    assert take() == take(NOTIFY_SOCKET="") == take(WATCHDOG_USEC="1000000") == Supervision()


def test_a_path_and_an_abstract_name_are_addresses() -> None:
    """A leading @ stands for the zero byte of the abstract namespace."""
    assert take(NOTIFY_SOCKET="/run/systemd/notify").address == b"/run/systemd/notify"
    assert take(NOTIFY_SOCKET="@a/b").address == b"\0a/b"


@pytest.mark.parametrize(
    "name",
    ["vsock:2:1234", "vsock-stream:2:1234", "notify", "./notify", "@", "/" * 108, f"@{'a' * 108}", "/a\0b"],
)
def test_what_is_no_address_is_refused_with_a_reason(name: str) -> None:
    """By the variable's name, and without its value; the worker runs as without a manager."""
    found = take(NOTIFY_SOCKET=name, WATCHDOG_USEC="1000000")
    assert (found.address, found.watchdog_s) == (None, None)
    (why,) = found.refused
    assert why.startswith("NOTIFY_SOCKET: ")
    assert name == "@" or name not in why


@pytest.mark.parametrize("name", ["/" + "a" * 106, "@" + "a" * 107])
def test_the_longest_addresses_are_taken(name: str) -> None:
    """Exactly what fits into the kernel's structure."""
    assert take(NOTIFY_SOCKET=name).address is not None


def test_all_variables_are_taken_out_of_the_environment() -> None:
    """No child of ours speaks in our name; what is not the manager's stays."""
    environ = {**SOCKET, "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/"}
    take_supervision(environ)
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize("pid", [None, "", str(os.getpid())], ids=["unset", "empty", "ours"])
def test_signs_of_life_are_given_by_the_process_that_is_meant(pid: str | None) -> None:
    """The variable for the process may be missing."""
    meant = {} if pid is None else {"WATCHDOG_PID": pid}
    assert take(**SOCKET, WATCHDOG_USEC="30000000", **meant).watchdog_s == 30.0


@pytest.mark.parametrize(
    "pid", ["0", "1", "-1", "x", f" {os.getpid()}"], ids=["0", "1", "-1", "x", "ours and a blank"]
)
def test_signs_of_life_of_another_process_are_none_of_our_business(pid: str) -> None:
    """Nothing is wrong with that, so nothing is refused."""
    found = take(**SOCKET, WATCHDOG_USEC="30000000", WATCHDOG_PID=pid)
    assert found == Supervision(address=b"/run/notify")


@pytest.mark.parametrize(
    "usec", ["0", "-1", "1.5", "99999", "86400000001", "1e6", "½", "٣", "9" * 400, " 1000000"]
)
def test_a_time_that_is_none_is_refused_and_the_rest_is_followed(usec: str) -> None:
    """The address is right, so the manager hears of us."""
    found = take(**SOCKET, WATCHDOG_USEC=usec)
    assert (found.address, found.watchdog_s) == (b"/run/notify", None)
    assert found.refused[0].startswith("WATCHDOG_USEC: ")


@given(
    st.dictionaries(
        st.sampled_from(["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]),
        st.text(st.characters(codec="utf-8"), max_size=200),
    )
)
def test_any_text_is_an_answer_and_never_an_error(environ: dict[str, str]) -> None:
    """Addresses that the kernel can take, times from a tenth of a second to a day; all variables are gone."""
    found = take_supervision(environ)
    assert environ == {}
    assert found.address is None or 2 <= len(found.address) <= 108
    assert found.watchdog_s is None or 0.1 <= found.watchdog_s <= 86_400
