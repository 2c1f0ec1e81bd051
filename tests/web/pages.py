"""What a test needs of the playground: a page that was opened on a server, the chat on it, and what must hold of every page at its end."""

import contextlib
import json

# In every document before its scripts: what ran that should not, and what the policy refused.
WATCH = """
window.ran = [];
window.refused = [];
window.mark = what => { window.ran.push(what); };
addEventListener("securitypolicyviolation", event => window.refused.push(event.violatedDirective + " " + event.blockedURI));
"""
IDLE = "!document.getElementById('send').hidden"
READY = "document.getElementById('state').textContent === 'ready'"


class Playground:
    def __init__(self, browser, port, **size):
        self.origin = "http://127.0.0.1:%d" % port
        self.page = browser.page(**size)
        self.page.before_scripts(WATCH)
        self.page.open(self.origin + "/")

    def ready(self):
        self.page.wait(READY)
        return self.page

    def send(self, text):
        self.page.fill("#prompt", text)
        self.page.click("#send")

    def ask(self, text):
        """Sends text, and returns the answer's own text when it is complete."""
        n = self.page.count(".msg.assistant")
        self.send(text)
        return self.answered(n)

    def answered(self, n):
        self.page.wait("%s && (document.querySelectorAll('.msg.assistant').length > %d || document.querySelector('.msg.error'))" % (IDLE, n))
        assert not self.page.count(".msg.error"), self.page.text(".msg.error")
        return self.page.js("[...document.querySelectorAll('.msg.assistant')].at(-1).querySelector('.answer').innerText.trim()")

    def stored(self, text):
        """Waits until a chat in the browser's storage holds text."""
        self.page.js("""new Promise((done, fail) => {
          const look = () => {
            const opening = indexedDB.open("spillway", 1);
            opening.onerror = fail;
            opening.onsuccess = () => {
              const all = opening.result.transaction("chats").objectStore("chats").getAll();
              all.onsuccess = () => {
                opening.result.close();
                if (JSON.stringify(all.result).includes(JSON.stringify(%s).slice(1, -1))) done(true);
                else setTimeout(look, 15);
              };
            };
          };
          look();
        })""" % json.dumps(text), wait=True)

    def figures(self):
        """The line below the last answer, as {name: value}."""
        return self.page.js("""Object.fromEntries([...[...document.querySelectorAll('.msg.assistant')].at(-1).querySelectorAll('.foot span')]
            .map(s => [s.firstChild.data.trim(), s.querySelector("b")?.textContent]))""")

    def requests(self, path):
        """Bodies of the requests to a path, as sent."""
        return [json.loads(e["request"]["postData"]) for e in self.page.seen("Network.requestWillBeSent")
                if e["request"]["url"] == self.origin + path and "postData" in e["request"]]

    def check(self, refused=False):
        """Nothing ran that came as text, no request left for another host, no script failed. refused: the test tried what the policy forbids."""
        page = self.page
        assert page.js("window.ran") == [], page.js("window.ran")
        other = [e["request"]["url"] for e in page.seen("Network.requestWillBeSent") if not e["request"]["url"].startswith((self.origin + "/", "data:"))]
        assert not other, other
        failed = [e["exceptionDetails"].get("exception", {}).get("description") for e in page.seen("Runtime.exceptionThrown")]
        assert not failed, failed
        if not refused:
            assert page.js("window.refused") == [], page.js("window.refused")


@contextlib.contextmanager
def playground(browser, port, refused=False, **size):
    p = Playground(browser, port, **size)
    try:
        yield p
        p.check(refused)
    finally:
        p.page.close()
