"""What only the nodes of a cluster know: three secrets, made from the root of its keys, each for one purpose.

One signs what a taker asks for, one what a giver answers, and one, with a snapshot's own name, seals its
manifest and its parts.
"""

from __future__ import annotations

import hmac
import secrets as system
import threading
from collections import OrderedDict
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from node.snapshot.errors import Stranger, Unfit
from node.snapshot.manifest import MOST_MANIFEST_BYTES, Manifest

SEAL_BYTES: Final = 16
"""A sealed part is longer than the part by so many."""
ID_BYTES: Final = 32
"""A sealed manifest begins with its snapshot's name, by which it opens."""
MOST_SEALED_BYTES: Final = ID_BYTES + MOST_MANIFEST_BYTES + SEAL_BYTES
WINDOW_MS: Final = 60_000
"""A request counts for so long before and after the time that it bears."""
MOST_REMEMBERED: Final = 100_000

_PURPOSE: Final = "delayline.snapshot.{}"
_MANIFEST: Final = 0xFFFFFFFF, 0
"""Its place: no snapshot has so many files."""
_part_number: Final = Struct(">IQ").pack  # 12 bytes, as AES-GCM has its nonces


class Asked(NamedTuple):
    """A request to a giver. `path`: it names the part. `once`: random, and of this request alone."""

    giver: str
    taker: str
    method: str
    path: str
    at_ms: int
    once: str

    @classmethod
    def new(cls, giver: str, taker: str, method: str, path: str, at_ms: int) -> Asked:
        """One that was never made."""
        return cls(giver, taker, method, path, at_ms, system.token_hex(16))


class Answered(NamedTuple):
    """What a giver answers. `once`: of the request, so that what was heard is an answer to nothing else."""

    once: str
    status: int
    body: bytes


class Secrets:
    """Those of one root."""

    def __init__(self, root: bytes) -> None:
        if not root:
            raise ValueError("a cluster without keys has no secrets: `delayline topics create` makes them")
        self._asking = _derived(root, "request")
        self._answering = _derived(root, "answer")
        self._root = root

    def sign(self, asked: Asked) -> str:
        """The signature of a request."""
        text = "\n".join(map(str, asked)).encode("utf-8", "surrogatepass")
        return hmac.new(self._asking, text, sha256).hexdigest()

    def is_signed(self, asked: Asked, signature: str) -> bool:
        """Whether who asks has the secrets."""
        return hmac.compare_digest(self.sign(asked).encode(), signature.encode("utf-8", "surrogatepass"))

    def vouch(self, answered: Answered) -> str:
        """The signature of an answer."""
        head = f"{answered.once}\n{answered.status}\n".encode("utf-8", "surrogatepass")
        return hmac.new(self._answering, head + answered.body, sha256).hexdigest()

    def is_vouched(self, answered: Answered, signature: str) -> bool:
        """Whether who answers has the secrets."""
        made = self.vouch(answered).encode()
        return hmac.compare_digest(made, signature.encode("utf-8", "surrogatepass"))

    def sealed(self, manifest: Manifest) -> bytes:
        """The manifest as it is handed out. Once for each snapshot: no place has two contents."""
        return manifest.id.encode() + self.seal(manifest.id).close_manifest(manifest.encode())

    def opened(self, sealed: bytes) -> Manifest:
        """Raises `Unfit` unless a node of this cluster has made that manifest."""
        if len(sealed) > MOST_SEALED_BYTES:
            raise Unfit(f"the manifest is not sealed by a node: it is longer than {MOST_SEALED_BYTES} bytes")
        id_ = sealed[:ID_BYTES].decode("ascii", "replace")
        manifest = Manifest.decode(self.seal(id_).open_manifest(sealed[ID_BYTES:]))
        if manifest.id != id_:
            raise Unfit("the manifest has another name than the one that it is sealed with")
        return manifest

    def seal(self, id_: str) -> Seal:
        """That of one snapshot, by its random name: no two snapshots have one key."""
        return Seal(_derived(self._root, "part", id_))


class Seal:
    """Seals the parts and the manifest of one snapshot. What is sealed has a place, and opens at no other; it
    is the same each time, so that a place never has two.
    """

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESGCM(secret)

    def close_manifest(self, content: bytes) -> bytes:
        """The manifest, sealed."""
        return self.close(*_MANIFEST, content)

    def open_manifest(self, sealed: bytes) -> bytes:
        """Raises `Unfit` unless it is the manifest."""
        try:
            return self.open(*_MANIFEST, sealed)
        except Unfit:
            raise Unfit("the manifest is not sealed by a node of this cluster, or was altered") from None

    def close(self, file: int, part: int, content: bytes) -> bytes:
        """A part, sealed."""
        return self._cipher.encrypt(_part_number(file, part), content, None)

    def open(self, file: int, part: int, sealed: bytes) -> bytes:
        """Raises `Unfit` unless it is that part."""
        try:
            return self._cipher.decrypt(_part_number(file, part), sealed, None)
        except InvalidTag:
            raise Unfit(f"part {part} of file {file} is not what the giver has sealed") from None


class Heard:
    """The numbers of the requests that this process has let in. For any thread."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._until_ms: OrderedDict[str, int] = OrderedDict()

    def expect_new(self, once: str, now_ms: int) -> None:
        """Remembers it for as long as a request may count. Raises `Stranger` if it was heard before."""
        with self._changing:
            self._forget(now_ms)
            # None is forgotten before its time: who floods has the secrets, and is told to wait.
            if once in self._until_ms or len(self._until_ms) >= MOST_REMEMBERED:
                raise Stranger("the request was made before, or there are too many")
            self._until_ms[once] = now_ms + 2 * WINDOW_MS

    def _forget(self, now_ms: int) -> None:
        while self._until_ms and next(iter(self._until_ms.values())) < now_ms:
            self._until_ms.popitem(last=False)


class Gate(NamedTuple):
    """Lets in who has the secrets, once for each request. For any thread. `heard`: the process's own, which
    outlives what it has opened.
    """

    secrets: Secrets
    giver: str
    heard: Heard

    def expect(self, asked: Asked, signature: str, now_ms: int) -> None:
        """Raises `Stranger`. `asked`: of this giver, by whoever says that he has made it."""
        if asked.giver != self.giver or not self.secrets.is_signed(asked, signature):
            raise Stranger("the request is not signed by a node of this cluster")
        if abs(now_ms - asked.at_ms) > WINDOW_MS:
            raise Stranger("the request is older than a minute, or one of the two clocks is wrong")
        self.heard.expect_new(asked.once, now_ms)


def _derived(root: bytes, purpose: str, of: str = "") -> bytes:
    """A keyed hash by a secret that is random: for each purpose another secret."""
    return hmac.new(root, f"{_PURPOSE.format(purpose)}\n{of}".encode(), sha256).digest()
