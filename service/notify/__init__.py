"""What a service manager (systemd, or whoever speaks its protocol) is told about this worker's life.

`stages` says what is said when, `datagrams` how it gets out, `notifier` does both in a thread of its own,
`following` is what hears of the worker's life in the event loop. Nothing here raises, and nobody waits for
it.
"""

from service.notify.following import Follower
from service.notify.notifier import Notifier, open_notifier, why_of

__all__ = ["Follower", "Notifier", "open_notifier", "why_of"]
