#!/usr/bin/env python3
"""The playground in a real browser: Chromium without a window, the page as the server sends it, and models that answer.

    run.py [--pictures FOLDER] [name ...]

One line for each test, then `N passed, N failed, N skipped`. --pictures: no tests; the pictures of docs/ are taken anew."""

import argparse
import os
import signal
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "fault"), os.path.join(os.path.dirname(HERE), "e2e")]

import scratch  # noqa: E402
import scripted  # noqa: E402
from access import CONTRAST, FOCUS, NAMES_MISSING, TAB_STOPS  # noqa: E402
from browser import SHIFT, Broken, Browser  # noqa: E402
from harness import Server, free_port, run_tests  # noqa: E402
from pages import IDLE, READY, playground  # noqa: E402
from relay import Relay  # noqa: E402

KEY = "a-key-of-the-test"
IMAGE = "<img src=x onerror=\"mark('%s')\">"
# What a model may write: each line would run in a page that takes text for HTML.
HOSTILE = """<think>
Hm %s so</think>

# <script>mark('heading')</script>

[one](javascript:mark('link')) and [two](data:text/html,<script>mark('data')</script>) ![three](https://pictures.example/a.png)
**bold <svg onload=mark('svg')> never closed, `code <b onclick=mark('code')>
- [four](JaVaScRiPt:mark%%28'case'%%29) <iframe src="javascript:mark('frame')">

| <a href="javascript:mark('cell')">x</a> | %s |
|---|---|
| <details open ontoggle=mark('toggle')> | <style>@import url(//styles.example)</style> |

```html
<body onload=mark('fence')>""" % (IMAGE % "think", IMAGE % "table")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "<img src=y onerror=mark(1)></pre><script>mark(2)</script>"}}\n</tool_call>'
GOOD = """## Rivers

1. **Tiber**
   - in *Rome*
2. ~~Thames~~

| river | km |
|:---|---:|
| Tiber | 406 |

> from [a list](https://rivers.example/all)

```python
def flow(): return "slow"  # here
```

https://other.example/x, and `km`."""
SCRIPTS = {"@page": HOSTILE, "@call": CALL, "@good": GOOD}
MODEL = "served %s name" % (IMAGE % "model")
LONG = "The miller had a mill by the river, and in it there was a cat that caught nothing all day long. " * 55
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


class Place:
    """The browser, the default model behind a relay, and the scripted one that wants a key."""

    def __init__(self):
        self.browser = Browser()
        self.port = free_port()
        self.server = Server(port=self.port)
        self.relay = Relay(self.port)
        folder = scripted.make(os.path.join(tempfile.mkdtemp(), "scripted"), SCRIPTS)
        self.scripted = Server("--model", folder, "--served-model-name", MODEL, "--device", "cpu", env={"SPILLWAY_API_KEY": KEY})

    def kill_server(self):
        self.server.proc.send_signal(signal.SIGKILL)
        self.server.proc.wait()
        self.server.stop()
        self.relay.cut()

    def start_server(self):
        self.server = Server(port=self.port)
        self.relay.server = self.port

    def open(self, **more):
        return playground(self.browser, self.relay.port, **more)

    def close(self):
        self.relay.close()
        self.browser.close()
        self.server.stop()
        self.scripted.stop()


@test
def a_newcomer_sees_what_is_loaded_and_gets_an_answer(place):
    with place.open() as p:
        page = p.ready()
        assert "pebble is loaded" in page.text(".empty") and "2,048 tokens" in page.text(".empty"), page.text(".empty")
        assert page.js("document.activeElement.id") == "prompt"
        assert page.text("#used") == "0 of 2,048 tokens"
        page.button("Tell me a short story about a fox.")
        assert p.answered(0)
        figures = p.figures()
        assert figures["first token"].endswith(" ms") and figures["speed"].endswith(" tok/s"), figures
        body = p.requests("/v1/chat/completions")[-1]
        assert body["return_timings"] and body["stream"] and body["model"] == "pebble", body
        total = int(figures["prompt"].split()[0]) + int(figures["output"].split()[0])
        assert page.text("#used") == "%d of 2,048 tokens" % total, (page.text("#used"), figures)


@test
def text_is_there_before_the_answer_is_complete(place):
    with place.open() as p:
        page = p.ready()
        place.relay.hold(4)
        p.send("Tell me a short story about a fox.")
        place.relay.held()
        page.wait("/writing … [1-9]/.test(document.querySelector('.msg.assistant .foot').innerText)")
        part = page.js("document.querySelector('.msg.assistant .text').innerText.trim()")
        assert page.text("#used").split()[0].isdigit(), page.text("#used")
        assert part and not page.js(IDLE), part
        # what is typed now, and Enter, change nothing
        page.js("document.getElementById('prompt').focus()")
        page.type("And then?")
        page.key("Enter")
        assert page.js("document.getElementById('prompt').value") == "And then?" and page.count(".msg.user") == 1
        place.relay.go_on()
        whole = p.answered(0)
        assert whole.startswith(part) and len(whole) > len(part), (part, whole)
        assert page.js("document.getElementById('prompt').value") == "And then?"


@test
def a_stopped_answer_keeps_what_had_come(place):
    with place.open() as p:
        page = p.ready()
        for n, way in enumerate((lambda: page.click("#stop"), lambda: page.key("Escape"))):
            place.relay.hold(3)
            p.send("Tell me a short story about a fox.")
            place.relay.held()
            page.wait("[...document.querySelectorAll('.msg.assistant .text')].at(-1).innerText.trim()")
            way()
            assert p.answered(n), "nothing was kept"
            assert p.figures().get("ended by") == "you", (n, p.figures(), p.page.text("#log"))
            place.relay.go_on()
        assert p.ask("What is the capital of France?")


@test
def settings_go_into_the_request_and_are_kept(place):
    with place.open() as p:
        page = p.ready()
        page.fill("#system", "Be brief.")
        page.js("document.getElementById('temperature').focus()")
        for _ in range(3):
            page.key("ArrowRight")
        page.fill("#max_tokens", "5")
        page.fill("#seed", "7")
        p.ask("Tell me a short story about a fox.")
        body = p.requests("/v1/chat/completions")[-1]
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}, body
        assert abs(body["temperature"] - 0.85) < 1e-9 and body["max_tokens"] == 5 and body["seed"] == 7 and body["top_p"] == 0.9, body
        assert page.text("#temperature-out") == "0.85"
        assert p.figures()["output"] == "5 tok" and p.figures()["ended by"] == "its limit of tokens", p.figures()
        page.fill("#max_tokens", "0")
        p.send("Again")
        page.wait("document.querySelector('.msg.error')")
        assert "max_tokens" in page.text(".msg.error"), page.text(".msg.error")
        page.open(p.origin + "/")
        p.ready()
        assert page.js("[...'system temperature seed'.split(' ')].map(id => document.getElementById(id).value)") == ["Be brief.", "0.85", "7"]


@test
def an_answer_by_a_schema_is_json_and_a_wrong_schema_is_shown_at_its_field(place):
    with place.open() as p:
        page = p.ready()
        page.choose("#form-kind", "json_schema")
        answer = p.ask("How many people live in Rome?")
        value = page.js("JSON.parse([...document.querySelectorAll('.msg.assistant pre')].at(-1).innerText)")
        assert isinstance(value["city"], str) and isinstance(value["people"], int), value
        assert answer.startswith("{\n  \"city\": "), answer
        assert page.count(".msg.assistant .hl-key") == 2
        page.fill("#schema", '{"type": <img src=x onerror=mark(3)>}')
        p.send("Again")
        page.wait("document.querySelector('.msg.error')")
        assert page.text("#schema-error").startswith("no JSON: ") and page.js("document.getElementById('schema').ariaInvalid") == "true"
        page.fill("#schema", '{"type": "object", "properties": {"a": {"type": "no such <b>type</b>"}}}')
        page.button("Try again")
        page.wait("/properties/.test(document.getElementById('schema-error').innerText)")
        page.choose("#form-kind", "")
        page.button("Try again")
        assert p.answered(1)


@test
def a_tool_call_waits_for_its_result(place):
    with place.open() as p:
        page = p.ready()
        page.choose("#tool_choice", "required")
        p.ask("What is the weather in Paris?")
        assert page.text("details.tool summary") == "Tool call get_weather", page.text("details.tool summary")
        assert '"city": ' in page.text("details.tool pre")
        page.choose("#tool_choice", "auto")
        page.fill(".results textarea", '{"sky": "sunny", "degrees": 24}')
        page.button("Send result")
        p.answered(1)
        messages = p.requests("/v1/chat/completions")[-1]["messages"]
        assert [m["role"] for m in messages] == ["user", "assistant", "tool"], messages
        assert messages[2]["tool_call_id"] == messages[1]["tool_calls"][0]["id"] and messages[2]["content"] == '{"sky": "sunny", "degrees": 24}', messages
        page.fill("#tools", "[]")
        p.send("And in Rome?")
        page.wait("/at least one tool/.test(document.getElementById('tools-error').innerText)")


@test
def a_server_that_dies_inside_an_answer_loses_nothing(place):
    with place.open() as p:
        page = p.ready()
        place.relay.hold(4)
        p.send("Tell me a short story about a fox.")
        place.relay.held()
        part = page.wait("document.querySelector('.msg.assistant .text').innerText.trim()")
        place.kill_server()
        page.wait("document.querySelector('.msg.error')")
        assert page.text(".msg.error .text") == "The connection broke before the answer was complete. What had come is kept."
        page.wait("document.getElementById('dot').classList.contains('no')")
        assert page.text("#state") == "no answer, trying again"
        assert page.text(".msg.assistant .text").startswith(part) and p.figures()["ended by"] == "a broken connection"
        page.button("Try again")
        page.wait("/cannot be reached/.test(document.querySelector('.msg.error')?.innerText)")
        assert page.text(".msg.user .text") == "Tell me a short story about a fox."
        place.start_server()
        p.ready()
        page.button("Try again")
        story = p.answered(0)
        p.stored(story)
        page.open(p.origin + "/")
        p.ready()
        page.click("#chat-list .open")
        page.wait("document.querySelector('.msg.assistant .text')")
        assert page.text(".msg.assistant .text").strip() == story


@test
def chats_are_kept_renamed_deleted_and_brought_back(place):
    with place.open() as p:
        page = p.ready()
        p.ask("What is the capital of France?")
        page.button("New chat")
        p.ask("What is the capital of Spain?")
        page.wait("document.querySelectorAll('#chat-list li').length === 2")
        page.button("Rename What is the capital of France?")
        page.js("document.querySelector('#chat-list input').select()")
        page.type("The <b>first</b> one")
        page.key("Enter")
        page.wait("document.querySelector('#chat-list').innerText.includes('The <b>first</b> one')")
        page.wait("document.activeElement.innerText === 'The <b>first</b> one'")
        page.open(p.origin + "/")
        page.wait("document.querySelectorAll('#chat-list li').length === 2")
        page.button("The <b>first</b> one")
        page.wait("document.querySelectorAll('.msg').length === 2")
        page.button("Delete The <b>first</b> one")
        page.wait("document.querySelectorAll('#chat-list li').length === 1 && document.querySelector('.empty')")
        page.button("Undo")
        page.wait("document.querySelectorAll('#chat-list li').length === 2 && document.querySelectorAll('.msg').length === 2")


@test
def a_message_is_edited_an_answer_made_again_and_copied(place):
    with place.open() as p:
        page = p.ready()
        p.ask("What is the capital of France?")
        page.button("Edit")
        page.js("document.querySelector('.edit textarea').select()")
        page.type("What is the capital of Spain?")
        page.button("Save and send")
        assert p.answered(0) and page.count(".msg") == 2
        assert [m["content"] for m in p.requests("/v1/chat/completions")[-1]["messages"]] == ["What is the capital of Spain?"]
        page.button("Try again")
        answer = p.answered(0)
        assert len(p.requests("/v1/chat/completions")) == 3
        place.browser.call("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"], "browserContextId": page.context})
        page.button("Copy", ".msg.assistant")
        page.wait("document.querySelector('.msg.assistant .foot').innerText.includes('Copied')")
        assert page.js("navigator.clipboard.readText()", wait=True).strip() == answer


@test
def at_the_end_of_the_context_the_oldest_can_be_dropped(place):
    with place.open() as p:
        page = p.ready()
        page.fill("#max_tokens", "8")
        p.ask(LONG)
        p.send("Again: " + LONG)
        page.wait("document.querySelector('.msg.error') && %s" % IDLE)
        assert "longer than the model can read" in page.text("#notice"), page.text("#notice")
        assert page.js("document.getElementById('context').classList.contains('full')")
        page.button("Drop oldest")
        page.wait("!document.querySelector('.msg.error')")
        p.answered(1)
        assert len(p.requests("/v1/chat/completions")[-1]["messages"]) == 1
        assert page.count(".msg.dropped") == 2 and "no longer sent" in page.text(".msg.dropped .who").lower()


@test
def a_key_is_asked_for_tried_and_kept_out_of_storage(place):
    with playground(place.browser, place.scripted.port) as p:
        page = p.page
        page.wait("document.getElementById('state').textContent === 'the API key is missing or wrong'")
        page.wait("!document.getElementById('notice').hidden")
        page.button("Enter the key")
        assert page.js("document.activeElement.id") == "key"
        page.fill("#key", "wrong")
        page.wait("document.getElementById('state').textContent === 'the API key is missing or wrong'")
        page.fill("#key", KEY)
        page.wait(READY)
        assert page.js("document.getElementById('notice').hidden")
        assert p.ask("Show it @page")
        assert KEY not in page.js("JSON.stringify(localStorage) + location.href")
        page.open(p.origin + "/")
        page.wait(READY)


@test
def what_a_model_writes_stays_text(place):
    with playground(place.browser, place.scripted.port) as p:
        page = p.page
        page.fill("#key", KEY)
        page.wait(READY)
        assert page.js("document.getElementById('model').value") == MODEL and IMAGE % "model" in page.text(".empty")
        page.fill("#system", "<script>mark('system')</script>" + IMAGE % "system")
        p.ask("Show it %s @page" % (IMAGE % "user"))
        page.click("details summary")
        shown = page.text("#log")
        for part in ("<script>mark('heading')</script>", "javascript:mark('link')", "<svg onload=mark('svg')> never closed", "<iframe src=",
                     "<body onload=", IMAGE % "think"):
            assert part in shown, (part, shown)
        page.choose("#tool_choice", "auto")
        p.ask("Look it up @call")
        assert "</pre><script>mark(2)</script>" in page.text("details.tool pre"), page.text("#log")
        page.fill(".results textarea", IMAGE % "result")
        page.button("Send result")
        p.answered(2)
        page.button("Rename " + page.js("document.querySelector('#chat-list .open').title"))
        page.fill("#chat-list input", IMAGE % "title")
        page.wait("document.querySelector('#chat-list').innerText.includes('onerror')")
        for again in (False, True):
            if again:
                page.open(p.origin + "/")
                page.wait(READY)
                page.click("#chat-list .open")
                page.wait("document.querySelectorAll('.msg').length > 4")
            inside = page.js("[...new Set([...document.querySelectorAll('.body *')].map(n => n.localName))]")
            assert not {"script", "img", "iframe", "svg", "style", "object", "embed"} & set(inside), inside
            assert page.js("[...document.querySelectorAll('a')].every(a => /^(https?|mailto):$/.test(a.protocol))")
            assert page.js("[...document.querySelectorAll('.body *')].every(n => [...n.attributes].every(a => !a.name.startsWith('on')))")


@test
def what_a_model_writes_in_markdown_is_set_out(place):
    with playground(place.browser, place.scripted.port) as p:
        page = p.page
        page.fill("#key", KEY)
        page.wait(READY)
        p.ask("Write it @good")
        shown = page.js("""(root => {
          const texts = selector => [...root.querySelectorAll(selector)].map(n => n.textContent);
          const links = [...root.querySelectorAll("a")].map(a => [a.textContent, a.href, a.rel]);
          return [texts("h3"), texts("ol > li > strong"), texts("ul em"), texts("s"), texts("th"), texts("td"), texts("blockquote"),
                  texts(".hl-key"), texts(".hl-str"), texts(".hl-note"), texts("p code"), links];
        })(document.querySelector(".msg.assistant .text"))""")
        safe = "noopener noreferrer"
        assert shown == [["Rivers"], ["Tiber"], ["Rome"], ["Thames"], ["river", "km"], ["Tiber", "406"], ["from a list"],
                         ["def", "return"], ['"slow"'], ["# here"], ["km"],
                         [["a list", "https://rivers.example/all", safe], ["https://other.example/x", "https://other.example/x", safe]]], shown


@test
def the_policy_forbids_what_the_page_never_does(place):
    with place.open(refused=True) as p:
        page = p.ready()
        for attempt in ("document.body.innerHTML = '<b>x</b>'", "eval('1')", "new Function('return 1')()", "document.body.setAttribute('onclick', 'mark(1)')",
                        "document.body.append(Object.assign(document.createElement('script'), { text: 'mark(1)' }))"):
            try:
                page.js(attempt)
            except Broken:
                continue
            raise AssertionError("the page may " + attempt)
        other = "http://127.0.0.1:%d/health" % place.scripted.port
        assert page.js("fetch('%s').then(() => 'came', () => 'refused')" % other, wait=True) == "refused"
        assert page.js("import('data:text/javascript,mark(1)').then(() => 'came', () => 'refused')", wait=True) == "refused"
        assert page.js("new Promise(r => document.head.append(Object.assign(new Image(), { onload: () => r('came'), onerror: () => r('refused'), src: '%s' })))"
                       % other, wait=True) == "refused"
        assert {x.split()[0] for x in page.js("window.refused")} >= {"connect-src", "img-src", "script-src-elem"}, page.js("window.refused")
        page.events[:] = [e for e in page.events if e[0] != "Network.requestWillBeSent"]  # what was just refused is listed too


@test
def the_page_works_by_keys_alone(place):
    with place.open() as p:
        page = p.ready()
        page.type("What is the capital of France?")
        page.key("Enter", SHIFT)
        page.type("One word.")
        page.key("Enter")
        assert p.answered(0)
        assert p.requests("/v1/chat/completions")[-1]["messages"][-1]["content"] == "What is the capital of France?\nOne word."
        assert page.js("document.activeElement.id") == "prompt"
        page.wait("document.querySelector('#chat-list li')")  # drawn when the chat is saved
        wanted, reached = set(page.js(TAB_STOPS)), set()
        while True:
            page.key("Tab")
            at = page.js(FOCUS)
            if at["body"]:
                continue  # between the last and the first
            if at["stop"] in reached:
                break
            assert at["seen"], "nothing shows that the focus is on " + at["stop"]
            reached.add(at["stop"])
        assert reached == wanted, (wanted - reached, reached - wanted)
        # an answer is made again by Tab and Enter
        page.js("[...document.querySelectorAll('.msg.assistant button')].find(b => b.innerText === 'Try again').focus()")
        page.key("Enter")
        assert p.answered(0) and len(p.requests("/v1/chat/completions")) == 2


@test
def controls_have_names_and_text_has_contrast(place):
    for scheme in ("light", "dark"):
        with place.open(scheme=scheme) as p:
            page = p.ready()
            dark = page.js("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(c => c < 60)")
            assert dark == (scheme == "dark"), scheme
            page.choose("#form-kind", "json_schema")
            page.choose("#tool_choice", "required")
            p.ask("What is the weather in Paris?")
            page.fill("#schema", "{")
            p.send("More")
            page.wait("document.querySelector('.msg.error')")
            assert page.js(NAMES_MISSING) == [], page.js(NAMES_MISSING)
            assert page.js(CONTRAST) == [], page.js(CONTRAST)
            page.click("#theme")
            assert page.js(CONTRAST) == [], page.js(CONTRAST)


@test
def a_phone_has_room_for_all_of_it(place):
    with place.open(width=390, height=844, mobile=True) as p:
        page = p.ready()
        p.ask("Tell me a short story about a fox.")
        assert page.js("document.scrollingElement.scrollWidth") <= 390
        assert page.js("document.getElementById('model').getBoundingClientRect().width") >= 120
        for opener, drawer in (("#show-chats", "#chats"), ("#show-settings", "#settings")):
            assert not page.js("document.querySelector('%s').checkVisibility()" % drawer)
            page.click(opener)
            assert page.js("document.querySelector('%s').checkVisibility() && document.querySelector('%s').contains(document.activeElement)" % (drawer, drawer))
            page.key("Escape")
            assert not page.js("document.querySelector('%s').checkVisibility()" % drawer)
            assert page.js("'#' + document.activeElement.id") == opener
        outside = page.js("""[...document.querySelectorAll("body *")]
          .filter(n => n.checkVisibility() && !n.closest("pre, .scroll") && n.getBoundingClientRect().right > 391)
          .map(n => n.outerHTML.slice(0, 80))""")
        assert not outside, outside


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    place = Place()
    try:
        if args.pictures:
            import pictures

            return pictures.take(place, args.pictures)
        return run_tests([fn for fn in TESTS if not args.names or fn.__name__ in args.names], place)
    finally:
        place.close()


if __name__ == "__main__":
    scratch.run(main)
