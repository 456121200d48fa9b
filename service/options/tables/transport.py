"""Options that came with framework 1.6: the response plane, structural tags as one object, transport TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.options.kinds import Boolean, Choice, Kind, Number, Text
from service.options.option import Group, Option, Refusal, flag_of
from service.options.tag_kind import TagSetting

if TYPE_CHECKING:
    from service.options.values import Value

_TLS = Refusal(
    needs="a framework that encrypts its transport, which no supported version does for this worker",
    instead="leave it out, and keep the request plane inside a network you trust",
)


def _tls(name: str, kind: Kind, default: Value, text: str, env: str = "") -> Option:
    prefix = "" if name.startswith("nats") else "DYN_"
    return Option(
        name=name,
        flag=flag_of(name),
        env=env or f"{prefix}{name.upper()}",
        kind=kind,
        default=default,
        group=Group.TRANSPORT,
        help=text,
        refusal=_TLS,
    )


_FILE = Text("a file")

TRANSPORT: tuple[Option, ...] = (
    Option(
        name="response_plane",
        flag="--response-plane",
        env="DYN_RESPONSE_PLANE",
        kind=Choice(("tcp", "quic")),
        default="tcp",
        group=Group.TRANSPORT,
        help="How answers travel back. Frontend and worker must agree.",
        framework_field="response_plane",
    ),
    Option(
        name="dyn_structural_tag",
        flag="--dyn-structural-tag",
        env="DYN_STRUCTURAL_TAG",
        kind=TagSetting(),
        bare="true",
        default=None,
        default_text="framework 1.6: on, where the engine follows tags",
        group=Group.TRANSPORT,
        help="Guide tool calls with structural tags: on, off, or one object; a scope that is not given is "
        "`always`. Where nobody says anything, an old spelling included, they are on, as upstream has them, "
        "with torch, and with trtllm and --guided-decoding-backend xgrammar; other engines follow none.",
        framework_field="structural_tag",
    ),
    _tls("tcp_tls_cert_path", _FILE, None, "Certificate of the TCP plane."),
    _tls("tcp_tls_key_path", _FILE, None, "Key of the TCP plane."),
    _tls("tcp_tls_ca_cert_path", _FILE, None, "CA of the TCP plane."),
    _tls("tcp_tls_insecure", Boolean(), False, "Do not check certificates of the TCP plane."),
    _tls("tcp_tls_server_name", Text("a host name"), None, "Expected name of the TCP server."),
    _tls(
        "tcp_tls_handshake_timeout",
        Number(0, 3600, with_minimum=False),
        None,
        "Longest TLS handshake, in seconds.",
        env="DYN_TCP_TLS_HANDSHAKE_TIMEOUT_SECS",
    ),
    _tls("tcp_tls_client_cert_path", _FILE, None, "Client certificate of the TCP plane."),
    _tls("tcp_tls_client_key_path", _FILE, None, "Client key of the TCP plane."),
    _tls("tcp_tls_client_ca_cert_path", _FILE, None, "CA for client certificates of the TCP plane."),
    _tls("nats_tls_ca_cert_path", _FILE, None, "CA of NATS."),
    _tls("nats_tls_insecure", Boolean(), False, "Do not check certificates of NATS."),
    _tls("nats_tls_client_cert_path", _FILE, None, "Client certificate of NATS."),
    _tls("nats_tls_client_key_path", _FILE, None, "Client key of NATS."),
)
