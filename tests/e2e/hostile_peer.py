"""A peer that lies: it stands between two servers, knows their key, and speaks their protocol (transfer/peer/pwire.h).

It passes the greetings on, so both ends derive one key from them, which it derives too. Then it reads each frame, changes the answers
of the one that is read, and seals them anew."""

import hashlib
import hmac
import socket
import struct
import threading

CHALLENGE, WELCOME, LOOKUP, FOUND = 2, 4, 5, 6
HEAD, MAC = 12, 16
SECRET = bytes(32)  # of servers on loopback without --kv-peer-key-file


class Answer:
    """FOUND: for each key None, or (slot, low and high half of the digest)."""

    def __init__(self, body):
        self.lease, self.ms, n = struct.unpack_from("<QII", body)
        at = 16 + (n + 7) // 8
        self.where = []
        for i in range(n):
            self.where.append(struct.unpack_from("<IQQ", body, at) if body[16 + i // 8] >> i % 8 & 1 else None)
            at += 20 if self.where[i] else 0

    def body(self):
        bits = bytearray((len(self.where) + 7) // 8)
        rest = b""
        for i, w in enumerate(self.where):
            if w:
                bits[i // 8] |= 1 << i % 8
                rest += struct.pack("<IQQ", *w)
        return struct.pack("<QII", self.lease, self.ms, len(self.where)) + bytes(bits) + rest


def swapped(a):
    """Each key gets the block of the next one, with the digest that belongs to it: bytes of other tokens."""
    have = [i for i, w in enumerate(a.where) if w]
    blocks = [a.where[i] for i in have]
    for i, w in zip(have, blocks[1:] + blocks[:1]):
        a.where[i] = w


def other_slots(a):
    """Slots of other blocks under the digests that were asked for."""
    swapped_slots = [w[0] for w in a.where if w]
    swapped_slots = iter(swapped_slots[1:] + swapped_slots[:1])
    a.where = [w and (next(swapped_slots), *w[1:]) for w in a.where]


def other_digests(a):
    a.where = [w and (w[0], w[1] ^ 1, w[2]) for w in a.where]


def beyond_the_slab(a):
    a.where = [w and (0xFFFFFFF0, *w[1:]) for w in a.where]


def all_is_here(a):
    """Also what the peer does not have: slots of whatever there is, and no digest."""
    a.where = [(i, 0, 0) for i in range(len(a.where))]


def for_ever(a):
    """A lease that never ends: the blocks are given to others all the same."""
    a.ms = 0xFFFFFFFF


class Liar:
    """Listens at port `here` for the one that reads, and goes on to `there`. lie: one of the functions above, or the name of one of
    the lies about frames: "old" (the answer to an earlier question), "cut" (a body that ends early), "forged" (without the key),
    "shifted" (the slab lies elsewhere)."""

    def __init__(self, here, there, lie):
        self.there, self.lie, self.told, self.old = there, lie, 0, None
        self.listener = socket.create_server(("127.0.0.1", here))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.there))
            hello, challenge = self.frame(client), None
            server.sendall(hello)
            challenge = self.frame(server)
            client.sendall(challenge)
            randoms = [f[HEAD:HEAD + 32] for f in (hello, challenge)]
            key = hmac.new(SECRET, b"spillway peer 1\0" + randoms[0] + randoms[1], hashlib.sha256).digest()
        except (OSError, EOFError):
            client.close()
            return
        threading.Thread(target=self.relay, args=(client, server, key, False), daemon=True).start()
        self.relay(server, client, key, True)

    def frame(self, s):
        def take(n):
            data = b""
            while len(data) < n:
                more = s.recv(n - len(data))
                if not more:
                    raise EOFError
                data += more
            return data

        head = take(HEAD)
        return head + take(struct.unpack_from("<I", head, 8)[0] + MAC)

    def relay(self, source, to, key, from_server):
        n = 0
        try:
            while True:
                f = self.frame(source)
                kind, body = struct.unpack_from("<H", f, 6)[0], f[HEAD:-MAC]
                if from_server:
                    body = self.changed(kind, body)
                out = f[:8] + struct.pack("<I", len(body)) + body
                inner = hmac.new(key, out, hashlib.sha256).digest()
                mac = hmac.new(key, inner + bytes([from_server]) + struct.pack("<Q", n), hashlib.sha256).digest()[:MAC]
                assert from_server or mac == f[-MAC:], "this program does not speak the protocol any more"
                if self.lie == "forged" and kind == FOUND:
                    mac = bytes(MAC)
                    self.told += 1
                to.sendall(out + mac)
                n += 1
        except (OSError, EOFError):
            pass
        finally:
            source.close()
            to.close()

    def changed(self, kind, body):
        if kind == WELCOME and self.lie == "shifted" and struct.unpack_from("<I", body)[0] == 0:
            verdict, epoch, base, size = struct.unpack_from("<IQQQ", body)
            self.told += 1
            return struct.pack("<IQQQ", verdict, epoch, base + 4096, size - 4096) + body[28:]
        if kind != FOUND:
            return body
        a = Answer(body)
        if not any(a.where) and self.lie is not all_is_here:
            return body
        if self.lie == "cut":
            self.told += 1
            return body[:-5]
        if self.lie == "old":
            if self.old is None:
                self.old = a.where
                return body
            a.where = [self.old[i % len(self.old)] for i in range(len(a.where))]
        elif callable(self.lie):
            self.lie(a)
        else:
            return body
        self.told += 1
        return a.body()

    def stop(self):
        self.listener.close()
