"""Layer A of the fault table, TLS: what a client may do to a handshake, to records and to the end of a connection, and what an
operator may do to the certificate. Certificates are made by the openssl command when the rows run."""

import http.client
import os
import re
import resource
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time

from harness import BINARY, PATIENCE, Conn, Server, eventually, post_bytes, row, slower, small_post

PING = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
HANDSHAKES = 1024  # at once, of server/conn.c


def make_certificate(folder, name="server", days=30, key="ec"):
    """Paths of a certificate for localhost and of its key."""
    cert, private = os.path.join(folder, name + ".pem"), os.path.join(folder, name + ".key")
    kind = ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"] if key == "ec" else ["rsa:2048"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-keyout", private, "-out", cert, "-days", str(days), "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    os.chmod(private, 0o600)
    return cert, private


def expired_certificate(folder, private):
    """A certificate of that key whose time is over."""
    cert = os.path.join(folder, "expired.pem")
    config = os.path.join(folder, "ca.conf")
    with open(config, "w", encoding="utf-8") as f:
        f.write("[ca]\ndefault_ca = d\n[d]\ndatabase = %s/index\nnew_certs_dir = %s\nrand_serial = yes\ndefault_md = sha256\npolicy = p\n[p]\ncommonName = supplied\n"
                % (folder, folder))
    open(os.path.join(folder, "index"), "w", encoding="utf-8").close()
    request = os.path.join(folder, "request.pem")
    subprocess.run(["openssl", "req", "-new", "-key", private, "-subj", "/CN=localhost", "-out", request], check=True, capture_output=True)
    subprocess.run(["openssl", "ca", "-batch", "-config", config, "-selfsign", "-keyfile", private, "-in", request, "-out", cert, "-notext",
                    "-startdate", "20200101000000Z", "-enddate", "20200201000000Z"], check=True, capture_output=True)
    return cert


class TlsServer(Server):
    """A server of HTTPS with a certificate of its own. `request` and what is made of it trust that certificate alone; that of `files` nobody checks."""

    def __init__(self, *args, folder, files=None, **kw):
        self.cert, self.key = files or make_certificate(folder)
        self.context = ssl._create_unverified_context() if files else ssl.create_default_context(cafile=self.cert)
        super().__init__("--tls-cert", self.cert, "--tls-key", self.key, *args, **kw)

    def request(self, method, path, body=None, headers=None, timeout=PATIENCE):
        plain = http.client.HTTPConnection
        http.client.HTTPConnection = lambda host, port, timeout: http.client.HTTPSConnection("localhost", port, timeout=timeout, context=self.context)
        try:
            return super().request(method, path, body, headers, timeout)
        finally:
            http.client.HTTPConnection = plain

    def secure(self, **kw):
        """A raw connection whose bytes go over TLS."""
        c = Conn(self, **kw)
        c.sock = self.context.wrap_socket(c.sock, server_hostname="localhost")
        return c

    def shakes(self, result):
        m = re.search(r'^spillway:tls_handshakes_total\{result="%s"\} (\S+)$' % result, self.get("/metrics").body.decode(), re.M)
        return float(m.group(1))

    def served(self):
        """The certificate that a new connection is shown, as bytes."""
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("localhost", self.port)))


def client_hello(context=None, name="localhost"):
    """The first flight of a client."""
    context = context or ssl._create_unverified_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    o = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        o.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


@row("A43", "TLS: plain HTTP on the TLS port gets a plain 400, TLS on the plain port a 400 or the end", own=True)
def a43(_):
    with tempfile.TemporaryDirectory() as folder:
        s = TlsServer(folder=folder)
        try:
            before = s.shakes("plain_http")
            for ask in (PING, b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", post_bytes("/v1/completions", b"x" * 300000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"G"):
                replies, closed = s.raw(ask)
                assert closed and len(replies) == 1 and replies[0].status == 400 and "https" in replies[0].error["message"], (ask[:20], replies)
                assert replies[0].header("connection") == "close", replies
            eventually(lambda: s.shakes("plain_http") == before + 5, "each is counted once")
            # the container's own question, by TLS and without
            ask = [BINARY, "--healthcheck", "--port", str(s.port)]
            p = subprocess.run(ask, env={**os.environ, "SPILLWAY_TLS_CERT": s.cert, "SPILLWAY_TLS_KEY": s.key}, capture_output=True, text=True, timeout=PATIENCE)
            assert p.returncode == 0, p
            p = subprocess.run(ask, capture_output=True, text=True, timeout=PATIENCE)
            assert p.returncode == 1 and "use https" in p.stderr, p
            assert s.get("/ping").status == 200
        finally:
            s.stop()
    s = Server()
    try:
        c = Conn(s)
        c.send(client_hello())
        replies = c.read_all()
        assert c.closed and (not replies or replies[0].status == 400), replies
        assert s.get("/ping").status == 200
    finally:
        s.stop()


@row("A44", "TLS: a ClientHello byte by byte, names and handshakes without end, garbage, renegotiation, old versions: bounded, refused", own=True)
def a44(_):
    with tempfile.TemporaryDirectory() as folder:
        s = TlsServer(folder=folder)
        try:
            # slow ones: the end comes by the server's clock, whatever they send meanwhile
            began = time.monotonic()
            hello = client_hello()
            slow = [Conn(s) for _ in range(20)]
            silent = [Conn(s) for _ in range(20)]
            for c in slow:
                c.sock.setblocking(False)
            sent, gone = 0, set()
            while len(gone) < len(slow) and time.monotonic() - began < PATIENCE:
                for c in slow:
                    if c in gone:
                        continue
                    try:
                        c.sock.send(hello[sent:sent + 1])
                        if c.sock.recv(10) == b"":
                            gone.add(c)
                    except BlockingIOError:
                        pass
                    except OSError:
                        gone.add(c)
                sent = min(sent + 1, len(hello) - 2)
                time.sleep(0.25)
            assert len(gone) == len(slow), "slow handshakes live on"
            assert time.monotonic() - began < 12 * slower(), "they lived %.1f s" % (time.monotonic() - began)
            for c in silent:
                assert c.read_all() == [] and c.closed
            for c in slow + silent:
                c.close()

            # more silent ones than may shake hands at once: a newcomer takes the place of the oldest
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
            crowd = [Conn(s) for _ in range(HANDSHAKES + 20)]

            def in_time():
                try:
                    return s.get("/ping").status == 200
                except OSError:
                    return False  # none of them is older than a second yet

            eventually(in_time, "a newcomer among %d handshakes" % len(crowd))
            assert s.metric("spillway:connections") <= HANDSHAKES + 2
            for c in crowd:
                c.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

            failed = s.shakes("failed")

            def refused(data):
                c = Conn(s)
                c.send(data)
                c.read_all()
                assert c.closed, data[:20]
                c.close()

            # a ClientHello whose name has 64 KiB, in as many records as it takes; one of 16 MiB; records of junk
            name = b"a" * 65000
            sni = struct.pack(">HHHBH", 0, len(name) + 5, len(name) + 3, 0, len(name)) + name
            body = b"\x03\x03" + b"r" * 32 + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + struct.pack(">H", len(sni) & 0xffff) + sni
            message = b"\x01" + struct.pack(">I", len(body))[1:] + body
            refused(b"".join(b"\x16\x03\x01" + struct.pack(">H", len(message[i:i + 16000])) + message[i:i + 16000] for i in range(0, len(message), 16000)))
            refused(b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + b"z" * 16380)
            for junk in (b"\x16\x03\x01\xff\xff" + b"j" * 200, b"\x17\x03\x03\0\x10" + b"j" * 16, b"\x80\x2e\x01\x03\x01" + b"\0" * 40, b"\0" * 4096, hello[:-3] + b"\xff" * 3000,
                         b"\x15\x03\x01\0\x02\x02\x28", b"\x16\x03\x01\0\0" * 3000):
                refused(junk)
            for version, options in ((ssl.TLSVersion.TLSv1_1, "TLS 1.1"), (ssl.TLSVersion.TLSv1, "TLS 1.0")):
                old = ssl._create_unverified_context()
                old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
                old.maximum_version = version
                old.set_ciphers("ALL:@SECLEVEL=0")
                try:
                    old.wrap_socket(socket.create_connection(("localhost", s.port)), server_hostname="localhost").close()
                    raise AssertionError(options + " was taken")
                except (ssl.SSLError, ConnectionError):
                    pass
            h2 = ssl._create_unverified_context()
            h2.set_alpn_protocols(["h2"])
            try:
                h2.wrap_socket(socket.create_connection(("localhost", s.port)), server_hostname="localhost").close()
                raise AssertionError("h2 was agreed on")
            except (ssl.SSLError, ConnectionError):
                pass
            assert s.shakes("failed") >= failed + 5

            # an old handshake again on an open connection: no, and the server goes on
            p = subprocess.run(["openssl", "s_client", "-connect", "localhost:%d" % s.port, "-tls1_2", "-CAfile", s.cert], input=b"R\n", capture_output=True, timeout=PATIENCE)
            assert b"no renegotiation" in p.stderr + p.stdout, p
            for c in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"):
                p = subprocess.run(["openssl", "s_client", "-connect", "localhost:%d" % s.port, "-tls1_2", "-cipher", c], input=b"", capture_output=True, timeout=PATIENCE)
                assert c.encode() in p.stdout and p.returncode == 0, p
            p = subprocess.run(["openssl", "s_client", "-connect", "localhost:%d" % s.port, "-tls1_2", "-cipher", "AES128-SHA:ECDHE-ECDSA-AES128-SHA"], input=b"", capture_output=True, timeout=PATIENCE)
            assert p.returncode != 0, "a cipher without authentication of records was taken"
            assert s.get("/ping").status == 200 and not s.error_lines(), s.tail()
        finally:
            s.stop()


@row("A45", "TLS: records of one byte, ends with and without close_notify in each state; no truncation passes for the whole", own=True)
def a45(_):
    with tempfile.TemporaryDirectory() as folder:
        s = TlsServer(folder=folder)
        try:
            c = s.secure()
            for i in range(len(PING)):  # a record for each byte
                c.sock.send(PING[i:i + 1])
            assert c.read_reply().status == 200
            for part in (PING + PING[:10], PING[10:] + PING):  # pipelined, cut anywhere
                c.send(part)
            assert [c.read_reply().status for _ in range(3)] == [200] * 3
            c.close()

            # large answers to one who reads slowly, through a small window
            c = s.secure(rcvbuf=4096)
            n = 60
            c.sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * (n - 1) + b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            time.sleep(0.5)
            replies = c.read_all()
            assert len(replies) == n and len({r.body for r in replies}) == 1 and c.closed, len(replies)
            c.close()

            # a body larger than what the server reads ahead
            big = b'{"max_tokens": 1, "prompt": "' + b" " * (3 << 20) + b'"}'
            r = s.post("/v1/completions", big)
            assert r.status in (200, 400), r

            # the end in the middle of a body: with and without close_notify; nothing is run
            began = s.metric("vllm:prompt_tokens_total")
            whole = small_post()
            for how in ("notify", "fin", "reset"):
                for cut in (5, len(whole) // 2, len(whole) - 1):
                    c = s.secure()
                    c.send(whole[:cut])
                    if how == "notify":
                        c.sock.settimeout(PATIENCE)
                        try:
                            c.sock.unwrap()
                        except OSError:
                            pass
                    elif how == "reset":
                        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    else:
                        c.sock.shutdown(socket.SHUT_WR)
                        c.data = b""
                        try:
                            while c.sock.recv(4096):
                                pass
                        except OSError:
                            pass
                    c.close()
            eventually(lambda: s.metric("spillway:connections") == 1, "they are gone")
            assert s.metric("vllm:prompt_tokens_total") == began, "a request that was cut was run"

            # the end while an answer streams: the generation ends, however the client went
            for how in ("notify", "fin", "reset"):
                before = s.metric("vllm:request_success_total")
                c = s.secure()
                c.send(post_bytes("/v1/completions", b'{"prompt": "Once", "max_tokens": 1900, "ignore_eos": true, "stream": true}'))
                assert c.sock.recv(100)
                if how == "notify":
                    try:
                        c.sock.settimeout(0.01)
                        c.sock.unwrap()
                    except OSError:
                        pass
                elif how == "reset":
                    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                c.close()
                eventually(lambda: s.metric("spillway:generations") == 0 and s.metric("vllm:request_success_total") == before + 1, "it ends: " + how)

            # a changed record: the connection ends at once, without an answer
            raw = socket.create_connection((s.host, s.port))
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            o = s.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            while True:
                try:
                    o.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    raw.sendall(outgoing.read())
                    incoming.write(raw.recv(1 << 16))
            raw.sendall(outgoing.read())
            o.write(PING)
            record = bytearray(outgoing.read())
            record[-1] ^= 1
            raw.sendall(record)
            raw.settimeout(PATIENCE)
            got = b""
            try:
                while piece := raw.recv(4096):
                    got += piece
            except OSError:
                pass
            raw.close()
            incoming.write(got)
            try:
                text = o.read(4096)
                raise AssertionError("an answer to a record that was changed: %r" % text)
            except ssl.SSLError:
                pass
            assert s.get("/ping").status == 200 and not s.error_lines(), s.tail()
        finally:
            s.stop()


@row("A46", "TLS: a certificate that is bad, expired, of another key or gone: at the start a clear line, at SIGHUP the one before stays", own=True)
def a46(_):
    with tempfile.TemporaryDirectory() as folder:
        cert, key = make_certificate(folder, "good")
        other_cert, other_key = make_certificate(folder, "other", key="rsa")
        expired = expired_certificate(folder, key)
        junk = os.path.join(folder, "junk")
        with open(junk, "wb") as f:
            f.write(b"\xff\0junk" * 1000)
        half = os.path.join(folder, "half.pem")
        with open(cert, "rb") as f, open(half, "wb") as out:
            good = f.read()
            out.write(good + good[: len(good) // 2])
        locked = os.path.join(folder, "locked.key")
        subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked], check=True, capture_output=True)
        missing = os.path.join(folder, "nothing")
        cases = [(cert, missing, "cannot read"), (missing, key, "cannot read"), (cert, folder, "cannot read"), (junk, key, "no certificate"), (cert, junk, "no private key"),
                 (cert, cert, "no private key"), (half, key, "behind the first one"), (cert, other_key, "not that of the certificate"), (expired, key, "has expired on 2020-02-01"),
                 (cert, locked, "has a passphrase")]
        for c, k, says in [x for x in cases if expired not in x]:
            p = subprocess.run([BINARY, "--port", "0", "--tls-cert", c, "--tls-key", k], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
            assert p.returncode == 78 and says in p.stderr and len(p.stderr.strip().split("\n")) == 1, (c, k, p)
        # one whose time is over is served to those who do not look: without it nobody would be
        s = TlsServer(folder=folder, files=(expired, key))
        try:
            assert "has expired on 2020-02-01" in s.tail() and "served all the same" in s.tail(), s.tail()
            assert s.metric("spillway:tls_certificate_expiration_timestamp_seconds") == 1580515200
        finally:
            s.stop()
        for args in (["--tls-cert", cert], ["--tls-key", key]):
            p = subprocess.run([BINARY, "--port", "0", *args], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
            assert p.returncode == 64 and "needs" in p.stderr, p

        with tempfile.TemporaryDirectory() as live:
            s = TlsServer(folder=live)
            try:
                first = s.served()
                held = s.secure()
                held.send(PING)
                assert held.read_reply().status == 200

                def put(c, k):
                    """By rename, as an agent that renews certificates does it."""
                    for source, place in ((c, s.cert), (k, s.key)):
                        with open(source, "rb") as f, open(place + ".new", "wb") as out:
                            out.write(f.read())
                        os.chmod(place + ".new", 0o600)
                        os.rename(place + ".new", place)

                def log():
                    with open(s.log_path, encoding="utf-8") as f:
                        return f.read()

                s.context.load_verify_locations(other_cert)
                for n, (c, k, says) in enumerate([x for x in cases if missing not in x and folder not in x]):
                    put(c, k)
                    s.proc.send_signal(signal.SIGHUP)
                    eventually(lambda: log().count("the certificate before stays") == n + 1, "it says so")
                    assert says in log().split("the certificate before stays")[-2], (says, s.tail())
                    assert s.served() == first
                put(cert, key)
                os.unlink(s.cert)
                s.proc.send_signal(signal.SIGHUP)
                eventually(lambda: "cannot read" in log(), "it says so")
                assert s.served() == first
                put(other_cert, other_key)
                s.proc.send_signal(signal.SIGHUP)
                eventually(lambda: "was read again" in log(), "the new one is in use")
                with open(other_cert, encoding="ascii") as f:
                    assert s.served() == ssl.PEM_cert_to_DER_cert(f.read())
                held.send(PING)  # by the certificate before
                assert held.read_reply().status == 200
                held.close()
                until = s.metric("spillway:tls_certificate_expiration_timestamp_seconds")
                assert 25 * 86400 < until - time.time() < 31 * 86400, until
                os.chmod(s.key, 0o644)
                s.proc.send_signal(signal.SIGHUP)
                eventually(lambda: "may be read by others (mode 644)" in log(), "a warning")
            finally:
                s.stop()
