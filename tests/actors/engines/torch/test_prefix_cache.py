"""Known blocks by content: what is forgotten first, what is told, and what a hash is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.torch.prefix_cache import Content, Entry, PrefixCache, Root, content_hash
from protocols.errors import InternalError
from protocols.steps import KvRemoved, KvStored

BLOCK = 2


def content(text: str, salt: str | None = None) -> Content:
    """A prompt of one token a letter."""
    return Content(Root(salt), [ord(letter) for letter in text], len(text))


class Book:
    """A cache and block numbers that are never used again; ``holds`` learns or takes a chain of blocks."""

    def __init__(self) -> None:
        self.cache = PrefixCache(BLOCK)
        self.next_block = 0

    def holds(self, text: str, salt: str | None = None) -> list[Entry]:
        own = content(text, salt)
        chain = self.cache.match(own, len(text))
        self.cache.hold(chain)
        for place in range(len(chain), len(text) // BLOCK):
            entry = self.cache.learn(self.next_block, chain[-1] if chain else None, own, place)
            assert entry is not None
            self.next_block += 1
            chain.append(entry)
        return chain

    def let_go(self, chain: list[Entry]) -> None:
        for entry in reversed(chain):
            assert self.cache.let_go(entry.block)

    def known(self, text: str) -> int:
        return len(self.cache.match(content(text), len(text)))


def test_the_longest_unused_goes_first_and_leaves_before_their_parents() -> None:
    """What was used last stays longest; of a chain the end goes first, so what is left can be found."""
    book = Book()
    old, new = book.holds("aabbcc"), book.holds("ddee")
    book.let_go(old)
    book.let_go(new)
    assert book.cache.evict(2) == [old[2].block, old[1].block]
    assert (book.known("aabbcc"), book.known("ddee")) == (1, 2)
    book.let_go(book.holds("aa"))
    assert book.cache.evict(2) == [new[1].block, new[0].block]
    assert book.known("aa") == 1


def test_what_is_held_is_never_evicted() -> None:
    """A shared beginning stays while anybody holds it, and goes when nobody does."""
    book = Book()
    one, two = book.holds("aabb"), book.holds("aacc")
    book.let_go(one)
    assert book.cache.evict(9) == [one[1].block]
    book.let_go(two)
    assert book.cache.evict(9) == [two[1].block, two[0].block]
    assert book.cache.unheld_blocks == 0


@given(
    texts=st.lists(st.text("ab", min_size=BLOCK, max_size=12), min_size=1, max_size=8),
    evictions=st.lists(st.integers(1, 4), max_size=20),
)
def test_nothing_is_forgotten_before_what_goes_on_from_it(texts: list[str], evictions: list[int]) -> None:
    """However chains share and whoever lets go first, an evicted block has no child that is still known."""
    book = Book()
    chains = [book.holds(text) for text in texts]
    for chain in chains[::2]:
        book.let_go(chain)
    for turn, count in enumerate(evictions):
        book.cache.evict(count)
        if 2 * turn + 1 < len(chains):
            book.let_go(chains[2 * turn + 1])
        known = {
            id(entry): entry for block in range(book.next_block) if (entry := book.cache.entry_of(block))
        }
        assert all(entry.parent is None or id(entry.parent) in known for entry in known.values())


def test_blocks_that_become_known_one_after_the_other_are_one_event() -> None:
    """Stored blocks of one chain are told together, a removal in between keeps its place."""
    book = Book()
    first = book.holds("aabb")
    book.let_go(book.holds("cc"))
    book.cache.evict(1)
    longer = book.holds("aabbddee")
    stored, other, removed, more = book.cache.take_events()
    assert stored == KvStored(
        block_hashes=tuple(entry.block_hash for entry in first),
        token_ids=tuple(b"aabb"),
        block_tokens=BLOCK,
    )
    assert isinstance(other, KvStored)
    assert removed == KvRemoved(block_hashes=other.block_hashes)
    assert isinstance(more, KvStored)
    assert more.parent_hash == first[1].block_hash
    assert more.token_ids == tuple(b"ddee")
    assert [entry.block_hash for entry in longer[2:]] == list(more.block_hashes)
    assert book.cache.take_events() == ()


def test_the_salt_is_told_with_what_is_stored() -> None:
    """A listener can tell equal tokens under different salts apart, by their hashes and by name."""
    book = Book()
    salts = (None, "", "a")
    for salt in salts:
        book.holds("aa", salt)
    events = [event for event in book.cache.take_events() if isinstance(event, KvStored)]
    assert [event.cache_salt for event in events] == list(salts)
    assert len({event.block_hashes for event in events}) == 3


def test_a_block_that_is_let_go_too_often_is_a_bug() -> None:
    """It would be given to somebody while another one reads it."""
    book = Book()
    (entry,) = book.holds("aa")
    book.let_go([entry])
    with pytest.raises(InternalError, match="released twice"):
        book.cache.let_go(entry.block)


def test_content_that_is_not_known_is_not_kept() -> None:
    """A block that was never learned is the caller's to free."""
    assert not PrefixCache(BLOCK).let_go(3)


roots = st.builds(Root, st.none() | st.text(max_size=3), st.none() | st.text(max_size=3))
blocks = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3).map(tuple)


@given(a=st.tuples(roots, blocks), b=st.tuples(roots, blocks))
def test_hashes_are_wide_and_tell_contents_apart(
    a: tuple[Root, tuple[int, ...]], b: tuple[Root, tuple[int, ...]]
) -> None:
    """Unsigned 64-bit; salt and adapter, absent and empty, cannot stand for each other."""
    hashes = content_hash(None, *a), content_hash(None, *b)
    assert all(0 <= number < 2**64 for number in hashes)
    assert (hashes[0] == hashes[1]) == (a == b)


def test_hashes_are_the_same_in_every_process() -> None:
    """A router compares those of several workers, before and after a restart: these two never change."""
    root = Root("salt", "adapter")
    first = content_hash(None, root, (1, 2, 3))
    assert first == 0xABF200DAC7359F3E
    assert content_hash(first, root, (4, 5, 70000)) == 0x567E9B07A4016E0F
