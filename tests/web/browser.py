"""A headless Chromium and one page in it, spoken to over a pipe in the Chrome DevTools Protocol.

Messages are JSON, each ended by a byte 0, both ways. One thread reads them: replies go to whoever asked, events into the page's lists. Nothing here
depends on time: `wait` returns when an expression of the page is true, and PATIENCE is what only a hang lasts."""

import base64
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

from harness import PATIENCE  # noqa: E402

FLAGS = [
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions",
    "--password-store=basic", "--mute-audio",
    # its sandbox wants a user that is not root, and name spaces that a container may not have
    "--no-sandbox",
    # no name is looked up: what the page would ask of another host fails, and is seen in its list of requests
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


class Broken(Exception):
    """The browser refused a command, or an expression threw."""


def high(fd):
    """The same file under a number that no dup2 below overwrites."""
    other = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return other


class Browser:
    def __init__(self):
        program = shutil.which("chromium")
        assert program, "chromium is not installed (tools/install.sh names its package)"
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        self.log_path = os.path.join(self.profile, "log")
        theirs_in, self.pipe_in = os.pipe()
        self.pipe_out, theirs_out = os.pipe()
        theirs_in, theirs_out = high(theirs_in), high(theirs_out)
        argv = [program, *FLAGS, "--user-data-dir=" + self.profile, "about:blank"]
        log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT, 0o600)
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2),
                   (os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)]
        self.pid = os.posix_spawn(program, argv, dict(os.environ, HOME=self.profile), file_actions=actions, setpgroup=0)
        for fd in (log, theirs_in, theirs_out):
            os.close(fd)
        self.turn = threading.Condition()
        self.replies, self.pages, self.ended, self.last_id = {}, {}, False, 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        rest = b""
        while True:
            try:
                data = os.read(self.pipe_out, 1 << 20)
            except OSError:
                data = b""
            *whole, rest = (rest + data).split(b"\0")
            with self.turn:
                for text in whole:
                    self._take(json.loads(text))
                self.ended = not data
                self.turn.notify_all()
            if not data:
                return

    def _take(self, message):
        if "id" in message:
            self.replies[message["id"]] = message
        elif message.get("sessionId") in self.pages:
            self.pages[message["sessionId"]].events.append((message["method"], message["params"]))

    def until(self, check, what):
        """check() under the lock after each message, until it is true."""
        with self.turn:
            done = self.turn.wait_for(lambda: self.ended or check(), PATIENCE)
            assert not self.ended, "chromium ended: " + self.tail()
            assert done, "not within %d s: %s" % (PATIENCE, what)
            return check()

    def tail(self):
        with open(self.log_path, errors="replace") as f:
            return "\n".join(f.read().split("\n")[-12:])

    def call(self, method, params=None, session=None):
        with self.turn:
            self.last_id += 1
            mine = self.last_id
        message = {"id": mine, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.pipe_in, data):]
        self.until(lambda: mine in self.replies, "a reply to " + method)
        reply = self.replies.pop(mine)
        if "error" in reply:
            raise Broken("%s: %s" % (method, reply["error"]["message"]))
        return reply["result"]

    def page(self, **size):
        """A page with a storage of its own, as of somebody who was never here."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        return Page(self, session, context, **size)

    def close(self):
        try:
            self.call("Browser.close")
        except (AssertionError, Broken, OSError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.reader.join(PATIENCE)
        os.close(self.pipe_in)
        os.close(self.pipe_out)
        shutil.rmtree(self.profile, ignore_errors=True)


# Resolves to the value of an expression as soon as it is true.
WAIT = """new Promise((done, fail) => {
  const look = () => {
    let value;
    try { value = (%s); } catch (e) { fail(e); return; }
    if (value) done(value); else setTimeout(look, 15);
  };
  look();
})"""

KEYS = {"Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, None), "Escape": ("Escape", 27, None), "Space": (" ", 32, " "),
        "ArrowRight": ("ArrowRight", 39, None), "ArrowDown": ("ArrowDown", 40, None)}
SHIFT, CONTROL = 8, 2


class Page:
    def __init__(self, browser, session, context, width=1280, height=800, mobile=False, scheme="light"):
        self.browser, self.session, self.context, self.events = browser, session, context, []
        browser.pages[session] = self
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(domain + ".enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])

    def call(self, method, **params):
        return self.browser.call(method, params, self.session)

    def before_scripts(self, source):
        """source runs in every document before its own scripts."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=source)

    def open(self, url):
        seen = len(self.events)
        self.call("Page.bringToFront")
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        self.browser.until(lambda: any(m == "Page.loadEventFired" for m, _ in self.events[seen:]), "the page is loaded")

    def js(self, expression, wait=False):
        """The value of an expression; with wait, of the promise that it is. It may not call eval where the page may not."""
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=wait, userGesture=True,
                      allowUnsafeEvalBlockedByCSP=False)
        if "exceptionDetails" in r:
            details = r["exceptionDetails"]
            raise Broken("%s: %s" % (expression[:200], details.get("exception", {}).get("description") or details["text"]))
        return r["result"].get("value")

    def wait(self, expression):
        try:
            return self.js(WAIT % expression, wait=True)
        except AssertionError as e:
            raise AssertionError("%s\nwaiting for: %s\nthe page says: %s" % (e, expression, self.text("body")[-1500:])) from None

    def text(self, selector):
        return self.js("document.querySelector(%s)?.innerText ?? ''" % json.dumps(selector))

    def count(self, selector):
        return self.js("document.querySelectorAll(%s).length" % json.dumps(selector))

    def click(self, selector, nth=0):
        """A press of the mouse in the middle of it, when it is there, seen, and on top."""
        box = self.wait("""(node => {
          if (!node) return null;
          node.scrollIntoView({ block: "nearest" });
          const r = node.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2, top = document.elementFromPoint(x, y);
          return top && (node.contains(top) || top.contains(node)) ? [x, y] : null;
        })(document.querySelectorAll(%s)[%d])""" % (json.dumps(selector), nth))
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def button(self, text, within="body"):
        """Presses the last button with this text or name, when it is there."""
        self.wait("""(wanted => {
          document.querySelectorAll("[data-test]").forEach(n => n.removeAttribute("data-test"));
          const all = [...document.querySelectorAll(%s + " button")].filter(b => b.checkVisibility() && (b.innerText.trim() === wanted || b.ariaLabel === wanted));
          all.at(-1)?.setAttribute("data-test", "");
          return all.length;
        })(%s)""" % (json.dumps(within), json.dumps(text)))
        self.click("[data-test]")

    def key(self, name, modifiers=0):
        key, code, text = KEYS[name]
        common = {"key": key, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        down = dict(common, type="keyDown", text=text) if text and not modifiers & CONTROL else dict(common, type="rawKeyDown")
        self.call("Input.dispatchKeyEvent", **down)
        self.call("Input.dispatchKeyEvent", **dict(common, type="keyUp"))

    def type(self, text):
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def fill(self, selector, text):
        """The field's text is replaced, as by somebody who marks all of it and types."""
        self.js("(n => { n.focus(); n.select(); })(document.querySelector(%s))" % json.dumps(selector))
        self.type(text) if text else self.js("document.execCommand('delete')")
        self.js("document.querySelector(%s).blur()" % json.dumps(selector))

    def choose(self, selector, value):
        done = self.js("""(n => {
          n.value = %s;
          n.dispatchEvent(new Event("input", { bubbles: true }));
          n.dispatchEvent(new Event("change", { bubbles: true }));
          return n.value;
        })(document.querySelector(%s))""" % (json.dumps(value), json.dumps(selector)))
        assert done == value, "%s has no %r" % (selector, value)

    def picture(self, path):
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        with open(path, "wb") as f:
            f.write(data)

    def seen(self, method):
        with self.browser.turn:
            return [params for m, params in self.events if m == method]

    def close(self):
        self.browser.call("Target.disposeBrowserContext", {"browserContextId": self.context})
        with self.browser.turn:
            del self.browser.pages[self.session]
